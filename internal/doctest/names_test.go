package doctest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A name of ours that a page has between backticks, such as inbox.Queue,
// kafka.Config.Window or, of any package, Config.Window, is one of the code.
func TestNamesInTheDocumentationExist(t *testing.T) {
	t.Parallel()
	exist := map[string]bool{}
	packages := []string{"consumer", "inbox", "failures", "migrations", "brokers/kafka", "brokers/rabbitmq", "brokers/memory", "brokers/brokertest"}
	for _, dir := range packages {
		for _, name := range exported(t, filepath.Join(root, dir)) {
			exist[filepath.Base(dir)+"."+name] = true
			exist[name] = true
		}
	}
	inline := regexp.MustCompile("`[^`\n]+`")
	ours := regexp.MustCompile(`[^.\w]((?:(?:consumer|inbox|failures|migrations|kafka|rabbitmq|memory|brokertest)\.[A-Z]\w*|(?:DeadLetter)?Config)(?:\.[A-Z]\w*)?)`)
	found := 0
	for path, text := range files(t, ".md") {
		for _, span := range inline.FindAllString(code.ReplaceAllString(text, ""), -1) {
			for _, name := range ours.FindAllStringSubmatch(span, -1) {
				found++
				if !exist[name[1]] {
					t.Errorf("%s names %s, which does not exist", path, name[1])
				}
			}
		}
	}
	require.Greater(t, found, 100)
}

// exported returns the exported names of a package: types with their fields and
// methods, functions, constants and variables.
func exported(t *testing.T, dir string) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.FileExports(file)
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				names = append(names, receiver(d)+d.Name.Name)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					names = append(names, declared(spec)...)
				}
			}
		}
	}
	return names
}

// receiver returns the type that f is a method of, with a dot, or nothing.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	t := f.Recv.List[0].Type
	if pointer, ok := t.(*ast.StarExpr); ok {
		t = pointer.X
	}
	if generic, ok := t.(*ast.IndexExpr); ok {
		t = generic.X
	}
	return t.(*ast.Ident).Name + "."
}

func declared(spec ast.Spec) (names []string) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, n := range s.Names {
			names = append(names, n.Name)
		}
	case *ast.TypeSpec:
		names = append(names, s.Name.Name)
		var members *ast.FieldList
		switch body := s.Type.(type) {
		case *ast.StructType:
			members = body.Fields
		case *ast.InterfaceType:
			members = body.Methods
		default:
			return names
		}
		for _, m := range members.List {
			for _, n := range m.Names {
				names = append(names, s.Name.Name+"."+n.Name)
			}
		}
	}
	return names
}
