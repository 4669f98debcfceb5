package slow

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// contentOf is what a command says, without its key: times to the microsecond, GPUs as a set, and without the epoch of an
// interval's sender, which is not part of what was measured.
func contentOf(command ledger.Command) string {
	value := reflect.New(reflect.TypeOf(command)).Elem()
	value.Set(reflect.ValueOf(command))
	return fmt.Sprintf("%T%s", command, describe(value))
}

func describe(value reflect.Value) string {
	switch held := value.Interface().(type) {
	case time.Time:
		return microsecond(held).String()
	case []string:
		set := slices.Clone(held)
		slices.Sort(set)
		return fmt.Sprintf("%q", slices.Compact(set))
	}
	switch value.Kind() {
	case reflect.Pointer:
		if value.IsNil() {
			return "none"
		}
		return describe(value.Elem())
	case reflect.Struct:
		text := "{"
		for i := range value.NumField() {
			if name := value.Type().Field(i).Name; name != "Key" && name != "OwnerEpoch" {
				text += name + ":" + describe(value.Field(i)) + " "
			}
		}
		return text + "}"
	}
	return fmt.Sprintf("%#v", value.Interface())
}
