// A real OpenID provider on loopback: node provider.mjs PORT REDIRECT_URI
import { Provider } from "oidc-provider";

const [port, redirect] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;
const people = {
  ann: { email: "ann@example.com", email_verified: true, groups: ["ml", "staff"] },
  bob: { email: "bob@example.com", email_verified: true },
  eve: { email: "eve@example.com", email_verified: false, groups: ["ml"] },
};
const common = {
  redirect_uris: [redirect],
  grant_types: ["authorization_code", "urn:ietf:params:oauth:grant-type:device_code"],
  response_types: ["code"],
};
const provider = new Provider(issuer, {
  clients: [
    { client_id: "topmast", token_endpoint_auth_method: "none", ...common },
    { client_id: "secretive", client_secret: "a secret of the provider: 5+5 is 50% of 20", ...common },
  ],
  claims: { openid: ["sub"], email: ["email", "email_verified"], groups: ["groups"] },
  scopes: ["openid", "email", "groups", "profile"],
  conformIdTokenClaims: process.env.IN_USERINFO === "1",
  features: { deviceFlow: { enabled: true }, devInteractions: { enabled: true } },
  cookies: { keys: ["for tests alone"] },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...(people[id] ?? {}) }) }),
});
provider.listen(Number(port), "127.0.0.1", () => console.log(issuer));
