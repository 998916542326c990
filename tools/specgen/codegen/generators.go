package codegen

import (
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"sync"

	"golang.org/x/tools/go/packages"
	applyargs "k8s.io/code-generator/cmd/applyconfiguration-gen/args"
	applygenerators "k8s.io/code-generator/cmd/applyconfiguration-gen/generators"
	clientargs "k8s.io/code-generator/cmd/client-gen/args"
	clientgenerators "k8s.io/code-generator/cmd/client-gen/generators"
	clienttypes "k8s.io/code-generator/cmd/client-gen/types"
	deepcopyargs "k8s.io/code-generator/cmd/deepcopy-gen/args"
	deepcopygenerators "k8s.io/code-generator/cmd/deepcopy-gen/generators"
	informerargs "k8s.io/code-generator/cmd/informer-gen/args"
	informergenerators "k8s.io/code-generator/cmd/informer-gen/generators"
	listerargs "k8s.io/code-generator/cmd/lister-gen/args"
	listergenerators "k8s.io/code-generator/cmd/lister-gen/generators"
	registerargs "k8s.io/code-generator/cmd/register-gen/args"
	registergenerators "k8s.io/code-generator/cmd/register-gen/generators"
	codegenutil "k8s.io/code-generator/pkg/util"
	"k8s.io/gengo/v2"
	"k8s.io/gengo/v2/generator"
	"k8s.io/gengo/v2/namer"
	"k8s.io/gengo/v2/parser"
	"k8s.io/gengo/v2/types"
	"k8s.io/klog/v2"
)

// Universe is a set of parsed API packages that several generators share.
// Parsing the packages and everything that they import is nine tenths of a
// generator's time, so it is done once.
type Universe struct {
	context *generator.Context
}

// klog and its exit hook are one per process, and so is the run of a generator.
var (
	quiet   sync.Once
	running sync.Mutex
)

// LoadFlags lets the go command complete the staging module's copy of go.mod;
// the repository's own is never written.
const LoadFlags = "GOFLAGS=-mod=mod"

// Load parses the packages of the module at moduleDir. Type errors are allowed:
// before deepcopy has run, no kind implements runtime.Object.
func Load(moduleDir string, importPaths ...string) (*Universe, error) {
	// What gengo warns about is the wording of foreign comments. Errors and what
	// ends the process still reach stderr.
	quiet.Do(func() {
		klog.LogToStderr(false)
		klog.SetOutput(io.Discard)
	})
	loaded := parser.NewWithOptions(parser.Options{BuildTags: []string{gengo.StdBuildTag}})
	config := &packages.Config{Dir: moduleDir, Env: append(os.Environ(), LoadFlags)}
	if err := loaded.LoadPackagesWithConfigForTesting(config, importPaths...); err != nil {
		return nil, fmt.Errorf("parsing the API packages %s: %w", strings.Join(importPaths, ", "), err)
	}
	// A parser builds its universe once only, hence one context for all; each
	// generator gets a copy with the names that it needs.
	context, err := generator.NewContext(loaded, namer.NameSystems{"raw": namer.NewRawNamer("", nil)}, "raw")
	if err != nil {
		return nil, fmt.Errorf("parsing the API packages %s: %w", strings.Join(importPaths, ", "), err)
	}
	return &Universe{context: context}, nil
}

// Only is the same universe as an input of fewer packages.
func (u *Universe) Only(importPaths ...string) *Universe {
	context := *u.context
	context.Inputs = importPaths
	return &Universe{context: &context}
}

// run executes one generator over the parsed packages. The generators end the
// process through klog when they meet an input that they do not like; here this
// becomes an error, so that the staging folder is still removed.
func (u *Universe) run(name string, systems namer.NameSystems, defaultSystem string, targets func(*generator.Context) []generator.Target) (err error) {
	running.Lock()
	defer running.Unlock()
	exit := klog.OsExit
	defer func() { klog.OsExit = exit }()
	type exited struct{ code int }
	klog.OsExit = func(code int) { panic(exited{code}) }
	defer func() {
		if recovered := recover(); recovered != nil {
			if _, ok := recovered.(exited); !ok {
				panic(recovered)
			}
			err = fmt.Errorf("running %s: it gave up, see its message above", name)
		}
	}()
	context := *u.context
	context.Namers = systems
	if order, found := systems[defaultSystem]; found {
		context.Order = (&namer.Orderer{Namer: order}).OrderUniverse(context.Universe)
	}
	if err := context.ExecuteTargets(targets(&context)); err != nil {
		return fmt.Errorf("running %s: %w", name, err)
	}
	return nil
}

// Deepcopy writes zz_generated.deepcopy.go into each parsed package that asks
// for it with its +k8s:deepcopy-gen tag.
func (u *Universe) Deepcopy() error {
	args := deepcopyargs.New()
	args.OutputFile = "zz_generated.deepcopy.go"
	return u.run("deepcopy-gen", deepcopygenerators.NameSystems(), deepcopygenerators.DefaultNameSystem(),
		func(c *generator.Context) []generator.Target { return deepcopygenerators.GetTargets(c, args) })
}

// Register writes zz_generated.register.go into each parsed package.
func (u *Universe) Register() error {
	args := registerargs.New()
	args.OutputFile = "zz_generated.register.go"
	return u.run("register-gen", registergenerators.NameSystems(), registergenerators.DefaultNameSystem(),
		func(c *generator.Context) []generator.Target { return registergenerators.GetTargets(c, args) })
}

// Output is a folder and the import path that it has.
type Output struct {
	Dir, Package string
}

// Sub is a folder below the output.
func (o Output) Sub(name string) Output {
	return Output{Dir: filepath.Join(o.Dir, filepath.FromSlash(name)), Package: path.Join(o.Package, name)}
}

// ApplyConfigurations writes one apply configuration per type that a kind of
// the parsed packages reaches. openAPI is the path of a file made by
// writeOpenAPI, or empty when no list-map keys are known. external names the
// package of apply configurations that exist elsewhere, by type.
func (u *Universe) ApplyConfigurations(out Output, openAPI string, external map[types.Name]string) error {
	args := applyargs.New()
	args.OutputDir, args.OutputPkg = out.Dir, out.Package
	args.OpenAPISchemaFilePath = openAPI
	for name, location := range external {
		args.ExternalApplyConfigurations[name] = location
	}
	return u.run("applyconfiguration-gen", applygenerators.NameSystems(), applygenerators.DefaultNameSystem(),
		func(c *generator.Context) []generator.Target { return applygenerators.GetTargets(c, args) })
}

// Clientset writes the typed clients, their fakes and the scheme.
func (u *Universe) Clientset(out Output, applyConfigurations string, groups []Group, plurals Plurals) error {
	args := clientargs.New()
	args.OutputDir, args.OutputPkg = filepath.Dir(out.Dir), path.Dir(out.Package)
	args.ClientsetName = path.Base(out.Package)
	args.ApplyConfigurationPackage = applyConfigurations
	args.PluralExceptions = plurals.exceptions()
	for _, group := range groups {
		args.Groups = append(args.Groups, clienttypes.GroupVersions{
			PackageName: group.Folder,
			Group:       clienttypes.Group(group.Folder), // client-gen puts in the full name from +groupName
			Versions:    []clienttypes.PackageVersion{{Version: clienttypes.Version(group.Version), Package: group.Package}},
		})
	}
	systems := clientgenerators.NameSystems(codegenutil.PluralExceptionListToMapOrDie(args.PluralExceptions))
	systems["resource"] = resourceNamer{plurals}
	return u.run("client-gen", systems, clientgenerators.DefaultNameSystem(),
		func(c *generator.Context) []generator.Target { return clientgenerators.GetTargets(c, args) })
}

// Listers writes one lister per kind.
func (u *Universe) Listers(out Output, plurals Plurals) error {
	args := listerargs.New()
	args.OutputDir, args.OutputPkg = out.Dir, out.Package
	args.PluralExceptions = plurals.exceptions()
	systems := listergenerators.NameSystems(codegenutil.PluralExceptionListToMapOrDie(args.PluralExceptions))
	return u.run("lister-gen", systems, listergenerators.DefaultNameSystem(),
		func(c *generator.Context) []generator.Target { return listergenerators.GetTargets(c, args) })
}

// Informers writes the shared informer factory and one informer per kind.
func (u *Universe) Informers(out Output, clientset, listers string, plurals Plurals) error {
	args := informerargs.New()
	args.OutputDir, args.OutputPkg = out.Dir, out.Package
	args.VersionedClientSetPackage, args.ListersPackage = clientset, listers
	args.SingleDirectory = true
	args.PluralExceptions = plurals.exceptions()
	systems := informergenerators.NameSystems(codegenutil.PluralExceptionListToMapOrDie(args.PluralExceptions))
	if err := u.run("informer-gen", systems, informergenerators.DefaultNameSystem(),
		func(c *generator.Context) []generator.Target { return informergenerators.GetTargets(c, args) }); err != nil {
		return err
	}
	return repairInformers(out.Dir, plurals)
}

// Group is one API group and version with its Go package.
type Group struct {
	// Folder is the first label of the group's name.
	Folder string
	// Version is the API version, such as v1alpha1.
	Version string
	// Package is the import path of the types.
	Package string
}

// Plurals maps a kind to the plural of its CRD, which is the resource name in
// every URL. Guessing it from the kind is wrong for Policy, Kinesis or DNS.
type Plurals map[string]string

// goName spells the plural with the capitals of the kind, so that the methods
// read well: Policy and policies give Policies, DNS and dnses give DNSes.
func (p Plurals) goName(kind string) string {
	plural := p[kind]
	common := 0
	for common < len(kind) && common < len(plural) && strings.EqualFold(kind[common:common+1], plural[common:common+1]) {
		common++
	}
	if common == 0 {
		return strings.ToUpper(plural[:1]) + goIdentifierTail(plural[1:])
	}
	return kind[:common] + goIdentifierTail(plural[common:])
}

// goIdentifierTail drops the dashes that a resource name may contain.
func goIdentifierTail(tail string) string { return strings.ReplaceAll(tail, "-", "") }

// exceptions is the plural list in the form of the --plural-exceptions flag.
func (p Plurals) exceptions() []string {
	exceptions := make([]string, 0, len(p))
	for kind := range p {
		exceptions = append(exceptions, kind+":"+p.goName(kind))
	}
	sort.Strings(exceptions)
	return exceptions
}

// resourceNamer answers with the CRD's plural as it is written there.
type resourceNamer struct{ plurals Plurals }

// Name implements namer.Namer.
func (n resourceNamer) Name(t *types.Type) string { return n.plurals[t.Name.Name] }
