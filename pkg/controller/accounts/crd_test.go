package accounts

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// definition is a CRD as it is shipped, with the API server's own code to apply it.
type definition struct {
	structural *schema.Structural
	openAPI    validation.SchemaValidator
	rules      *cel.Validator
}

func define(t *testing.T, manifest string) definition {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "manifests", "crd", manifest))
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		t.Fatal(err)
	}
	refuseInvalid(t, crd)
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &props, nil); err != nil {
		t.Fatal(err)
	}
	var d definition
	if d.structural, err = schema.NewStructural(&props); err != nil {
		t.Fatal(err)
	}
	if d.openAPI, _, err = validation.NewSchemaValidator(&props); err != nil {
		t.Fatal(err)
	}
	d.rules = cel.NewValidator(d.structural, true, celconfig.PerCallLimit)
	return d
}

// refuseInvalid fails the test when the API server would not take the definition itself, e.g. because a rule may cost too much.
func refuseInvalid(t *testing.T, crd apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(&crd)
	crd.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
	var internal apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&crd, &internal, nil); err != nil {
		t.Fatal(err)
	}
	if problems := crdvalidation.ValidateCustomResourceDefinition(t.Context(), &internal); len(problems) > 0 {
		t.Fatalf("the API server refuses the definition of %s: %v", crd.Name, problems.ToAggregate())
	}
}

// create writes the defaults into an object in JSON and says what the API server has against storing it.
func (d definition) create(t *testing.T, content string) (stored []byte, problems field.ErrorList) {
	t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal([]byte(content), &object); err != nil {
		t.Fatalf("%v in %s", err, content)
	}
	object["metadata"] = map[string]any{"name": "team-a", "uid": "u1"}
	defaulting.Default(object, d.structural)
	problems = validation.ValidateCustomResource(nil, object, d.openAPI)
	problems = append(problems, listtype.ValidateListSetsAndMaps(nil, d.structural, object)...)
	broken, _ := d.rules.Validate(t.Context(), nil, d.structural, object, nil, celconfig.RuntimeCELCostBudget)
	stored, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return stored, append(problems, broken...)
}
