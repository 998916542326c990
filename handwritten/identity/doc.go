// Package identity decides who may enter an application. It knows the roles of
// the realm, verifies access tokens, and answers the gateway's question whether
// a request may pass to an AppInstance (contract/appliance.md C.4 (5), F.1, F.2).
//
// In go the AppInstances of the appliance's namespace, watched; the realm's
// signing keys, fetched now and then; and per request the path that the policy
// fixed and the token that the gateway forwards. Out comes 200 or 403, with no
// word why: reasons are for metrics and debug logs.
//
// Everything that is missing, broken, late or not understood denies. No check
// waits for the API server, and none for the realm, except that a token signed
// by a key that is not known yet may wait a moment for a fetch that all share.
//
// # Whose tokens
//
// A token counts when the realm issued it (iss, signature), to the client that
// the gateway signs people in with (azp), as an access token (typ), and not for
// somebody else (aud). What Keycloak writes into aud, and what follows, stands at
// TokenRules.
//
// # Group IDs
//
// Allow-lists hold stable Keycloak IDs. Keycloak's own group mapper writes names
// or paths into a token, never IDs (https://github.com/keycloak/keycloak/issues/34405),
// so the realm needs a mapper that puts the IDs of a person's groups into the claim
// TokenRules.GroupsClaim (group_ids); the README has one made of built-in parts. A token
// without it has no groups: allow-lists of users work, those of groups admit
// nobody. Names are never taken for IDs, because a name can change hands.
//
// # What the gateway must be told
//
// Envoy Gateway runs ext_authz before oauth2 and jwt_authn unless the
// EnvoyProxy says otherwise. In that order the guard is asked before a person
// could sign in, sees no token, and denies everybody. The gateway's EnvoyProxy
// therefore needs
//
//	spec:
//	  filterOrder:
//	  - name: envoy.filters.http.ext_authz
//	    after: envoy.filters.http.jwt_authn
//
// Then the oauth2 filter answers sign-in, callback and sign-out itself and never
// asks the guard; every other request comes with the access token in
// Authorization (forwardAccessToken: true), which the HTTP form of ext_authz
// always passes on.
package identity
