package httpserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"unicode/utf8"

	"magicstick.dev/operator/generated/httpapi"
)

// MaxBody is the largest request body in bytes.
const MaxBody = 64 << 10

// maxDepth bounds the nesting of a body; custom resources need less than 20.
const maxDepth = 64

// readBody replaces the body of r by a copy that was read in full and is one
// JSON object without duplicate keys. An absent body stays absent.
func readBody(w http.ResponseWriter, r *http.Request) error {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	if r.ContentLength > MaxBody {
		return bodyTooLarge(MaxBody)
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return bodyTooLarge(MaxBody)
		}
		return Refused("the body ended too early")
	}
	if len(data) == 0 {
		r.Body, r.ContentLength = http.NoBody, 0
		return nil
	}
	media, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset, given := parameters["charset"]
	if err != nil || media != "application/json" || given && !isUTF8(charset) || r.Header.Get("Content-Encoding") != "" {
		return &Error{kind: kindMedia, detail: "the body must be application/json"}
	}
	// What follows reads the header again and knows the bare media type only.
	r.Header.Set("Content-Type", media)
	if refused := checkJSON(data); refused != nil {
		return Invalid(*refused)
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	return nil
}

func isUTF8(charset string) bool {
	return len(charset) == 5 && (charset[0]|0x20) == 'u' && (charset[1]|0x20) == 't' && (charset[2]|0x20) == 'f' && charset[3:] == "-8"
}

// checkJSON refuses what encoding/json would accept silently: duplicate keys,
// something after the value, a value that is not an object, invalid UTF-8, endless nesting.
func checkJSON(data []byte) *httpapi.FieldError {
	notJSON := &httpapi.FieldError{Rule: "json", Message: "must be one JSON object"}
	if !utf8.Valid(data) {
		return &httpapi.FieldError{Rule: "json", Message: "must be UTF-8"}
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	first, err := decoder.Token()
	if err != nil || first != json.Delim('{') {
		return notJSON
	}
	if refused := checkObject(decoder, nil); refused != nil {
		return refused
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return notJSON
	}
	return nil
}

func checkObject(decoder *json.Decoder, path []string) *httpapi.FieldError {
	seen := map[string]bool{}
	for {
		token, err := decoder.Token()
		if err != nil {
			return &httpapi.FieldError{Rule: "json", Message: "must be one JSON object"}
		}
		if token == json.Delim('}') {
			return nil
		}
		key, _ := token.(string)
		at := append(path[:len(path):len(path)], key)
		if seen[key] {
			return &httpapi.FieldError{Field: pointer(at), Rule: "duplicateField", Message: "is given twice"}
		}
		seen[key] = true
		if refused := checkValue(decoder, at); refused != nil {
			return refused
		}
	}
}

func checkValue(decoder *json.Decoder, path []string) *httpapi.FieldError {
	if len(path) > maxDepth {
		return &httpapi.FieldError{Field: pointer(path), Rule: "json", Message: "is nested too deeply"}
	}
	token, err := decoder.Token()
	if err != nil {
		return &httpapi.FieldError{Rule: "json", Message: "must be one JSON object"}
	}
	switch token {
	case json.Delim('{'):
		return checkObject(decoder, path)
	case json.Delim('['):
		for i := 0; decoder.More(); i++ {
			if refused := checkValue(decoder, append(path[:len(path):len(path)], strconv.Itoa(i))); refused != nil {
				return refused
			}
		}
		if _, err := decoder.Token(); err != nil {
			return &httpapi.FieldError{Rule: "json", Message: "must be one JSON object"}
		}
	}
	return nil
}
