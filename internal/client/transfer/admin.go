package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// Paths of the admin listener.
const (
	BackupPath = "/admin/backup"
	ErasePath  = "/admin/erase"
)

// backupBytesHeader is admin.BytesHeader; a test holds the two together.
const backupBytesHeader = "Pulsegate-Backup-Bytes"

// Backup fetches a backup from the admin listener and gives it to receive, with the
// size of its files, or 0 where the server does not tell. It returns the error of
// receive.
func (c *Client) Backup(ctx context.Context, receive func(archive io.Reader, fileBytes int64) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(idleTimeout, func() {
		cancel(fmt.Errorf("the server sent nothing for %v", idleTimeout))
	})
	defer idle.Stop()
	resp, err := c.administer(ctx, BackupPath, "")
	if err != nil {
		return fmt.Errorf("fetch backup: %w", cause(ctx, err))
	}
	defer resp.Body.Close()
	if !framed(resp) {
		return errors.New("fetch backup: the answer does not tell where it ends")
	}
	fileBytes, _ := strconv.ParseInt(resp.Header.Get(backupBytesHeader), 10, 64) // 0 after an error
	body := &steadyReader{ctx: ctx, r: resp.Body, idle: idle}
	return receive(body, fileBytes)
}

// A steadyReader reads a body of which each part comes in time.
type steadyReader struct {
	ctx  context.Context
	r    io.Reader
	idle *time.Timer
}

func (s *steadyReader) Read(p []byte) (int, error) {
	s.idle.Reset(idleTimeout)
	n, err := s.r.Read(p)
	s.idle.Stop() // a slow disk is not the server's silence
	if err != nil && err != io.EOF {
		err = fmt.Errorf("fetch backup: broken off: %w", cause(s.ctx, err))
	}
	return n, err
}

// Erase has the admin listener erase a device, and returns how many readings it had.
// It takes as long as the server needs. A *Problem tells why the server did not.
func (c *Client) Erase(ctx context.Context, device string) (readings int64, err error) {
	body, err := json.Marshal(map[string]string{"device": device})
	if err != nil {
		return 0, fmt.Errorf("erase device %s: %w", device, err)
	}
	resp, err := c.administer(ctx, ErasePath, string(body))
	if err != nil {
		return 0, fmt.Errorf("erase device %s: %w", device, err)
	}
	defer resp.Body.Close()
	var answer struct {
		Erased int64 `json:"erased"`
	}
	if err := json.UnmarshalRead(io.LimitReader(resp.Body, maxAnswerBytes), &answer); err != nil {
		return 0, fmt.Errorf("erase device %s: read answer: %w", device, err)
	}
	return answer.Erased, nil
}

// administer posts a body to the admin listener. The error wraps a *Problem when the
// answer is not 200.
func (c *Client) administer(ctx context.Context, path, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.target+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := c.do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	return nil, errors.Join(readProblem(resp, text), resp.Body.Close())
}
