package sim

import (
	"bytes"
	"cmp"
	"errors"
	"strconv"
	"time"

	"github.com/pulsegate/pulsegate/vitals"
)

// The blocks of MLLP: a message is between startBlock and endBlock, which CR follows.
const (
	startBlock = 0x0b
	endBlock   = 0x1c
)

// mdcCodes has codes of IEEE 11073-10101 by codes of LOINC: signs are sent with either. It is never modified.
var mdcCodes = map[string]string{
	"8480-6":  "150021^MDC_PRESS_BLD_NONINV_SYS^MDC",
	"8462-4":  "150022^MDC_PRESS_BLD_NONINV_DIA^MDC",
	"59408-5": "150456^MDC_PULS_OXIM_SAT_O2^MDC",
}

// hl7Code returns OBX-3 of a sign, or "" if the sign has no code.
func hl7Code(d *vitals.Definition) string {
	if len(d.LOINC) == 0 {
		return ""
	}
	return cmp.Or(mdcCodes[d.LOINC[0]], d.LOINC[0]+"^^LN")
}

// appendMessage appends the samples of a request as a message ORU^R01 in MLLP. Each sign of a sample is an OBX.
func (f *Fleet) appendMessage(dst []byte, r *request, number uint64) []byte {
	dst = append(dst, startBlock)
	dst = appendNumbered(append(dst, `MSH|^~\&|`...), "gw-", r.gateway)
	dst = strconv.AppendUint(append(dst, "||||20260101000000+0000||ORU^R01^ORU_R01|"...), number, 10)
	dst = append(dst, "|P|2.6|||NE|AL\rPID|||\rOBR|1|||PULSEGATE^sim\r"...)
	ordinal := int64(0)
	for i := range r.samples {
		s := &r.samples[i]
		minutes, _ := s.offset.Minutes()
		at := time.UnixMilli(s.timeMs).In(time.FixedZone("", minutes*60))
		for sign, v := range s.values.All() {
			d := f.signs.Of(sign)
			ordinal++
			dst = strconv.AppendInt(append(dst, "OBX|"...), ordinal, 10)
			dst = append(append(dst, "|NM|"...), hl7Code(d)...)
			dst = strconv.AppendInt(append(dst, "|1.1."...), int64(i+1), 10)
			dst = strconv.AppendInt(append(dst, '.'), ordinal, 10)
			dst = d.Append(append(dst, '|'), v)
			dst = append(append(append(dst, '|'), d.Unit...), "|||||R|||"...)
			dst = at.AppendFormat(dst, "20060102150405.000-0700")
			dst = append(f.appendDevice(append(dst, "||||"...), s.device), '\r')
		}
	}
	return append(dst, endBlock, '\r')
}

// readMessage reads the message of one answer. Errors other than [ErrProtocol] are from the connection.
func (r *answerReader) readMessage() (response, error) {
	r.left = maxAnswerBytes
	first, err := r.in.ReadByte()
	if err != nil {
		return response{}, err
	}
	if first != startBlock {
		return response{}, notMLLP("it does not begin with a start block")
	}
	text, err := r.in.ReadBytes(endBlock)
	last := byte(0)
	if err == nil {
		last, err = r.in.ReadByte()
	}
	switch {
	case errors.Is(err, errTooLarge):
		return response{}, notMLLP(errTooLarge.Error())
	case err != nil:
		return response{}, err
	case last != '\r':
		return response{}, notMLLP("the end block has no CR")
	case r.in.Buffered() > 0:
		return response{}, notMLLP("more than one answer to a message")
	}
	return response{body: text[:len(text)-1]}, nil
}

// judgeAck classifies the acknowledgement of a message of n readings.
func judgeAck(text []byte, number uint64, n int) answer {
	broken := func(fault string) answer { return answer{verdict: undocumented, fault: fault} }
	var msa, header [][]byte
	rejections := 0
	for line := range bytes.SplitSeq(text, []byte("\r")) {
		fields := bytes.Split(line, []byte("|"))
		switch string(fields[0]) {
		case "MSH":
			header = fields
		case "MSA":
			msa = fields
		case "ERR":
			rejections++
		}
	}
	switch {
	case len(header) < 12 || string(header[8]) != "ACK^R01^ACK" || len(msa) < 3:
		return broken("not an ACK of HL7 v2")
	case string(msa[2]) != strconv.FormatUint(number, 10):
		return broken("an ACK of another message")
	}
	switch code := string(msa[1]); {
	case code == "AA" && rejections == 0:
		return answer{verdict: accepted, stored: n}
	case code == "AE" && rejections > 0:
		return answer{verdict: refusedWhole, part: true, problem: "AE"}
	case code == "AR" && rejections > 0:
		return answer{verdict: refusedWhole, problem: "AR"}
	}
	return broken("an ACK without a documented code, or ERR segments that do not fit it")
}
