package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// stage runs the processes of the demonstration and prints what they tell. It has
// nothing to do with settle.
type stage struct {
	ctx     context.Context
	w       *os.File // every process writes here, this one too
	signals chan string
	done    chan struct{}
}

func newStage(ctx context.Context) (*stage, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s := &stage{ctx: ctx, w: w, signals: make(chan string, 100), done: make(chan struct{})}
	go s.show(r)
	return s, nil
}

// show prints lines as they come: "who<tab>what" with the time, others as they are.
func (s *stage) show(r io.Reader) {
	defer close(s.done)
	start := time.Now()
	for lines := bufio.NewScanner(r); lines.Scan(); {
		who, what, actor := strings.Cut(lines.Text(), "\t")
		signal, isSignal := strings.CutPrefix(what, "!")
		switch {
		case isSignal:
			s.signals <- signal
		case actor:
			fmt.Printf("  %5.2fs  %-9s %s\n", time.Since(start).Seconds(), who, what)
		default:
			fmt.Println(lines.Text())
		}
	}
}

func (s *stage) say(who, format string, args ...any) {
	_, _ = fmt.Fprintf(s.w, "%s\t%s\n", who, fmt.Sprintf(format, args...))
}

func (s *stage) print(lines ...string) {
	_, _ = fmt.Fprintln(s.w, strings.Join(lines, "\n"))
}

// close waits until everything is printed.
func (s *stage) close() error {
	err := s.w.Close()
	<-s.done
	return err
}

// process is one started role.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{}
	err   error
}

// start runs this program again in another role.
func (s *stage) start(name, role string, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(s.ctx, self, append([]string{role}, args...)...)
	cmd.Stdout, cmd.Stderr = s.w, os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.say(name, "starts (pid %d)", cmd.Process.Pid)
	p := &process{cmd: cmd, stdin: stdin, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = cmd.Wait()
	}()
	return p, nil
}

func (s *stage) startProvider(fault, ledger string) (*process, string, error) {
	p, err := s.start("provider", "provider", fault, ledger)
	if err != nil {
		return nil, "", err
	}
	url, err := s.await("url", p)
	if err != nil {
		p.stop()
	}
	return p, url, err
}

// await waits for a signal, as long as p, whose doing it is, lives.
func (s *stage) await(signal string, p *process) (string, error) {
	for {
		select {
		case got := <-s.signals:
			if name, value, _ := strings.Cut(got, " "); name == signal {
				return value, nil
			}
		case <-p.ended:
			return "", fmt.Errorf("a process ended before the signal %q: %w", signal, p.err)
		case <-s.ctx.Done():
			return "", s.ctx.Err()
		}
	}
}

func (p *process) wait() error {
	<-p.ended
	return p.err
}

// stop ends a provider: it lives as long as its standard input.
func (p *process) stop() {
	_ = p.stdin.Close()
	_ = p.wait()
}
