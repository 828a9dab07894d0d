package transfer

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"
)

// Paths of the admin listener.
const (
	BackupPath = "/admin/backup"
	ErasePath  = "/admin/erase"
)

// backupBytesHeader equals admin.BytesHeader; a test checks that.
const backupBytesHeader = "Pulsegate-Backup-Bytes"

// Backup fetches a backup from the admin listener and passes it to receive, with the
// total size of its files, or 0 if unknown. It returns the error of receive.
func (c *Client) Backup(ctx context.Context, receive func(archive io.Reader, fileBytes int64) error) error {
	resp, err := c.stream(ctx, http.MethodPost, BackupPath)
	if err != nil {
		return fmt.Errorf("fetch backup: %w", err)
	}
	defer resp.Body.Close()
	fileBytes, _ := strconv.ParseInt(resp.Header.Get(backupBytesHeader), 10, 64) // 0 after an error
	return receive(resp.Body, fileBytes)
}

// Erase asks the admin listener to erase a device, and returns how many readings it
// had. It has no timeout. If the server rejects, the error wraps a *Problem.
func (c *Client) Erase(ctx context.Context, device string) (readings int64, err error) {
	body, err := json.Marshal(map[string]string{"device": device})
	if err != nil {
		return 0, fmt.Errorf("erase device %s: %w", device, err)
	}
	resp, err := c.ask(ctx, http.MethodPost, ErasePath, string(body))
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
