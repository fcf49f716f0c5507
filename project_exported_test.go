package settle_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// Every exported identifier of the packages that users import is documented: types, functions, methods, those of interfaces too,
// constants and variables, of which a comment above a group speaks for all. Fields are left to the comment of their type.
func TestProjectExportedIdentifiersAreDocumented(t *testing.T) {
	n := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "internal" || d.Name() == "bin" || d.Name() == "testdata"),
			path == "examples", path == "cmd", path == "sqltest", path == "tools":
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, name := range undocumented(file, &n) {
			t.Errorf("%s: %s is not documented", path, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 500 {
		t.Errorf("only %d exported identifiers found", n)
	}
}

// undocumented lists the exported identifiers of a file without a comment, and counts all.
func undocumented(file *ast.File, n *int) (out []string) {
	check := func(name string, docs ...*ast.CommentGroup) {
		*n++
		for _, d := range docs {
			if strings.TrimSpace(d.Text()) != "" {
				return
			}
		}
		out = append(out, name)
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && exportedReceiver(d) {
				check(d.Name.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range s.Names {
						if name.IsExported() {
							check(name.Name, s.Doc, s.Comment, d.Doc)
						}
					}
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						check(s.Name.Name, s.Doc, s.Comment, d.Doc)
						methods(s, check)
					}
				}
			}
		}
	}
	return out
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}

// methods checks what an interface asks for: each method says what it means to whoever implements or calls it.
func methods(s *ast.TypeSpec, check func(string, ...*ast.CommentGroup)) {
	x, ok := s.Type.(*ast.InterfaceType)
	if !ok {
		return
	}
	for _, m := range x.Methods.List {
		for _, name := range m.Names {
			check(s.Name.Name+"."+name.Name, m.Doc, m.Comment)
		}
	}
}
