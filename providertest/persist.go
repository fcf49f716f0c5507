package providertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// line is one commit in the file. The newest line of an object or key counts.
type line struct {
	Records []record `json:"records,omitempty"`
	Key     *binding `json:"key,omitempty"`
}

// load opens the file and reads it. A last line without its end was never
// answered for, so it is cut off.
func (p *Provider) load() (err error) {
	f, err := os.OpenFile(p.o.Path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	all, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	whole := all[:bytes.LastIndexByte(all, '\n')+1]
	if err := f.Truncate(int64(len(whole))); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	n := 0
	for text := range bytes.Lines(whole) {
		n++
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		for _, r := range l.Records {
			p.put(r)
		}
		p.bind(l.Key)
	}
	p.file = f
	return nil
}

// save makes a commit durable. After a failed write nothing more is written, so
// that no line follows half a line.
func (p *Provider) save(l line) error {
	if p.file == nil || p.broken != nil {
		return p.broken
	}
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if _, p.broken = p.file.Write(append(b, '\n')); p.broken == nil {
		p.broken = p.file.Sync()
	}
	return p.broken
}

// Close closes the file of Options.Path. Requests after it fail.
func (p *Provider) Close() error {
	p.lock()
	defer p.unlock()
	if p.file == nil {
		return nil
	}
	return p.file.Close()
}
