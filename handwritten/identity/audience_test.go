package identity_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"magicstick.dev/operator/handwritten/identity"
	"magicstick.dev/operator/handwritten/identity/identitytest"
)

// Whom a token was issued to and whom it is for: every form that Keycloak gives
// aud, against both clients, with and without an audience of our own.
func TestVerify_denies_tokens_for_another_audience(t *testing.T) {
	issuer := identitytest.New(t)
	configured := rules()
	configured.Audience = "magicstick-applications"
	verifiers := map[string]*identity.Verifier{"": verifier(t, issuer, rules(), fixed), configured.Audience: verifier(t, issuer, configured, fixed)}
	const valid, other, client = identity.TokenValid, identity.TokenAudience, identity.TokenClient
	for _, test := range []struct {
		aud                 any
		byDefault, configed identity.TokenState // issued to our client
	}{
		{nil, valid, other},
		{"account", valid, other},
		{[]string{"account"}, valid, other},
		{[]string{"account", "realm-management"}, valid, other},
		{identitytest.ClientID, valid, other},
		{[]string{"litellm", identitytest.ClientID}, valid, other},
		{"litellm", other, other},
		{[]string{"litellm", "realm-management"}, other, other},
		{"", other, other},
		{"Account", other, other},
		{"account ", other, other},
		{identitytest.ClientID + "-2", other, other},
		{configured.Audience, other, valid},
		{[]string{"account", configured.Audience}, valid, valid},
		{[]string{"litellm", configured.Audience}, other, valid},
		{configured.Audience + "-2", other, other},
		{map[string]string{"a": "account"}, identity.TokenMalformed, identity.TokenMalformed},
	} {
		for audience, v := range verifiers {
			want := test.byDefault
			if audience != "" {
				want = test.configed
			}
			for azp, want := range map[string]identity.TokenState{identitytest.ClientID: want, "somebody-else": client, "": client} {
				if want == client && test.byDefault == identity.TokenMalformed {
					want = identity.TokenMalformed
				}
				t.Run(fmt.Sprintf("aud %v, azp %q, configured %q", test.aud, azp, audience), func(t *testing.T) {
					_, state := v.Verify(t.Context(), issuer.Token(t, identitytest.Claims(epoch, ada, []string{"magicstick-user"}, nil,
						map[string]any{"aud": test.aud, "azp": azp})))
					assert.Equal(t, want.String(), state.String())
				})
			}
		}
	}
}
