package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/settle-go/settle"
	"github.com/settle-go/settle/sqlstore"
)

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// command is one word of the command line. A new value is made for each run.
type command interface {
	flags(fs *flag.FlagSet)
	// check says what is wrong with the arguments, before any database is opened.
	check(args []string) error
	run(ctx context.Context, s *session, args []string) error
}

type entry struct {
	name, args, about string
	opens             opening
	make              func() command
}

func commands() []entry {
	return []entry{
		{"migrate", "", "create the tables, or bring them up to date", migrates, func() command { return new(migrate) }},
		{"list", "", "list operations, oldest first", reads, func() command { return new(list) }},
		{"show", "ID...", "show what is known about an operation, and its timeline", reads, func() command { return new(show) }},
		{"assign", "ID...", "give a review an owner and a deadline", writes, func() command { return new(assign) }},
		{"resolve", "ID...", "record what a person found out or decided", writes, func() command { return new(resolve) }},
		{"redrive", "ID...", "run a consequence that was set aside again", writes, func() command { return new(redrive) }},
		{"stats", "", "count operations and their ages by kind and state", reads, func() command { return new(stats) }},
		{"watch", "[ID...]", "print changes as they happen, until interrupted", reads, func() command { return new(watch) }},
	}
}

// session is what a command works with.
type session struct {
	db       *sql.DB
	dialect  sqlstore.Dialect
	store    *sqlstore.Store
	engine   *settle.Engine
	in       io.Reader
	out, err io.Writer
	json     bool
	failures int // of single operations, told already
}

// usageError is a mistake in the call.
type usageError string

func (e usageError) Error() string { return string(e) }

// run is the whole program. It returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	s := &session{in: stdin, out: stdout, err: stderr}
	dsn := os.Getenv("SETTLE_DSN")
	common := func(fs *flag.FlagSet) {
		fs.SetOutput(io.Discard)
		// Not a StringVar: its default, with a password in it, would be printed with the help.
		fs.Func("dsn", "the `database`: sqlite:FILE, postgres://…, mysql://… (default: SETTLE_DSN)", func(v string) error { dsn = v; return nil })
		fs.BoolVar(&s.json, "json", s.json, "print JSON, an object a line")
	}
	fs := flag.NewFlagSet("settle", flag.ContinueOnError)
	common(fs)
	wrong := func(name string, err error) int {
		s.complain(err.Error())
		s.complain("run 'settle help" + name + "' for what it takes")
		return exitUsage
	}
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return s.help(nil)
	case err != nil:
		return wrong("", err)
	case fs.NArg() == 0:
		return wrong("", usageError("no command"))
	case fs.Arg(0) == "help":
		return s.help(fs.Args()[1:])
	}
	for _, e := range commands() {
		if e.name != fs.Arg(0) {
			continue
		}
		cmd := e.make()
		own := flag.NewFlagSet(e.name, flag.ContinueOnError)
		common(own)
		cmd.flags(own)
		rest, err := parse(own, fs.Args()[1:])
		if errors.Is(err, flag.ErrHelp) {
			return s.help([]string{e.name})
		}
		if err == nil {
			rest, err = s.ids(rest)
		}
		if err == nil && e.args == "" && len(rest) > 0 {
			err = usageError(e.name + " takes no arguments")
		}
		if err == nil && e.args == "ID..." && len(rest) == 0 {
			err = usageError(e.name + " needs the id of an operation")
		}
		if err == nil {
			err = cmd.check(rest)
		}
		if err == nil && dsn == "" {
			err = usageError("no database: give -dsn or set SETTLE_DSN")
		}
		if err != nil {
			return wrong(" "+e.name, err)
		}
		return s.do(ctx, dsn, e, cmd, rest)
	}
	return wrong("", usageError("unknown command "+fs.Arg(0)))
}

// do opens the database and runs the command on it.
func (s *session) do(ctx context.Context, dsn string, e entry, cmd command, args []string) int {
	err := s.open(ctx, dsn, e.opens)
	if err == nil {
		err = cmd.run(ctx, s, args)
	}
	s.close()
	var usage usageError
	switch {
	case errors.As(err, &usage):
		s.complain(err.Error())
		return exitUsage
	case err != nil:
		s.complain(trimmed(err))
		return exitFailed
	case s.failures > 0:
		return exitFailed
	}
	return exitOK
}

// parse reads flags wherever they stand among the arguments.
func parse(fs *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		if fs.NArg() == 0 {
			return rest, nil
		}
		if n := len(args) - fs.NArg(); n > 0 && args[n-1] == "--" {
			return append(rest, fs.Args()...), nil
		}
		rest, args = append(rest, fs.Arg(0)), fs.Args()[1:]
	}
}

// complain tells what is wrong. There is nobody to tell if that fails.
func (s *session) complain(text string) { _, _ = fmt.Fprintf(s.err, "settle: %s\n", clean(text)) }

func (s *session) help(args []string) int {
	var b strings.Builder
	for _, e := range commands() {
		if len(args) == 0 || e.name != args[0] {
			continue
		}
		b.WriteString("settle " + e.name + " [flags]" + spaced(e.args) + ": " + e.about + "\n\n")
		fs := flag.NewFlagSet(e.name, flag.ContinueOnError)
		e.make().flags(fs)
		fs.SetOutput(&b)
		fs.Func("dsn", "the `database`: sqlite:FILE, postgres://…, mysql://… (default: SETTLE_DSN)", nil)
		fs.Bool("json", false, "print JSON, an object a line")
		fs.PrintDefaults()
	}
	switch {
	case len(args) == 0:
		b.WriteString("settle COMMAND [flags] [arguments]: what became of the operations in a store, and who decides.\n\nCommands:\n")
		for _, e := range commands() {
			_, _ = fmt.Fprintf(&b, "  %-8s %-8s %s\n", e.name, e.args, e.about) // a builder takes everything
		}
		b.WriteString("\nThe database is given by -dsn or SETTLE_DSN. 'settle help COMMAND' lists its flags. An ID of - reads ids from the\n" +
			"standard input, the first word of each line. Exit codes: 0, 1 if something failed, 2 if called wrongly.\n")
	case b.Len() == 0:
		s.complain("unknown command " + args[0])
		return exitUsage
	}
	if _, err := io.WriteString(s.out, b.String()); err != nil {
		return exitFailed
	}
	return exitOK
}

func spaced(s string) string {
	if s == "" {
		return ""
	}
	return " " + s
}

// object prints one line of JSON.
func (s *session) object(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(s.out, "%s\n", b)
	}
	return err
}
