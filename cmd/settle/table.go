package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// table prints lines of cells in columns, and keeps the first error. What is in a cell is cleaned.
type table struct {
	w   *tabwriter.Writer
	err error
}

func newTable(w io.Writer, indent string, heads ...string) *table {
	t := &table{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.put(indent, heads)
	return t
}

func (t *table) line(indent string, cells ...string) {
	for i, c := range cells {
		if cells[i] = clean(c); c == "" {
			cells[i] = "-"
		}
	}
	t.put(indent, cells)
}

func (t *table) put(indent string, cells []string) {
	if t.err == nil {
		_, t.err = fmt.Fprintln(t.w, indent+strings.Join(cells, "\t"))
	}
}

func (t *table) flush() error {
	if t.err == nil {
		t.err = t.w.Flush()
	}
	return t.err
}
