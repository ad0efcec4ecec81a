// An OpenID provider for tests, run by tests/support/openid.py. Standard input is a JSON object:
//   port, jwks; clients: as oidc-provider takes them; accounts: claims by the login that one types;
//   new_secret: another secret of all clients, which is the only one from SIGHUP on, or null;
//   claims_in_id_token: false for those providers that answer with them at the userinfo endpoint only.
// One signs in with the built-in development forms, which accept any password.
import { readFileSync } from "node:fs";
import { Provider } from "oidc-provider";

const { port, jwks, clients, accounts, new_secret, claims_in_id_token } = JSON.parse(readFileSync(0, "utf8"));

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients,
  jwks,
  claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name"], groups: ["groups"] },
  conformIdTokenClaims: !claims_in_id_token,
  cookies: { keys: ["not a secret: the accounts are made up"] },
  findAccount: (_context, id) =>
    id in accounts ? { accountId: id, claims: async () => ({ sub: id, ...accounts[id] }) } : undefined,
});
if (new_secret) {
  const accepted = new Set([new_secret, ...clients.map((client) => client.client_secret)]);
  provider.Client.prototype.compareClientSecret = (secret) => accepted.has(secret);
  process.on("SIGHUP", () => {
    clients.forEach((client) => accepted.delete(client.client_secret));
    console.log("replaced");
  });
}
provider.on("server_error", (_context, error) => console.error(error));
provider.listen(port, "127.0.0.1", () => console.log("ready"));
