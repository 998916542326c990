package catalogs

import (
	"testing"

	"magicstick.dev/operator/generated/catalogs"
)

func BenchmarkParseModules(b *testing.B) {
	text := catalogs.ShippedModuleCatalogJSON()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseModules(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParsePresets(b *testing.B) {
	text := catalogs.ShippedPresetCatalogJSON()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParsePresets(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseEngines(b *testing.B) {
	text := catalogs.ShippedEngineCatalogJSON()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseEngines(text); err != nil {
			b.Fatal(err)
		}
	}
}
