// A receiver of webhooks that fails in every way. It verifies each message with the secret in the environment, and
// writes each accepted one as a line: its id, and its body. It answers a request by its number.
import { createServer } from "node:http";
import { Webhook } from "standardwebhooks";

const hook = new Webhook(process.env.SECRET);
let n = 0;
const server = createServer((request, response) => {
  let body = "";
  request.on("data", (text) => { body += text; });
  request.on("end", () => {
    const answer = (status, headers = {}) => response.writeHead(status, headers).end();
    try {
      hook.verify(body, request.headers);
    } catch {
      return answer(401);
    }
    const accept = () => console.log(request.headers["webhook-id"] + " " + JSON.stringify(JSON.parse(body)));
    switch (++n) {
      case 1: return answer(500);
      case 2: return answer(302, { location: "/elsewhere" });
      case 3: return request.socket.destroy(); // it has nothing
      case 4: accept(); return request.socket.destroy(); // it gets the message twice
      case 5: return answer(429, { "retry-after": "1" });
      case 6: accept(); return setTimeout(() => answer(204), 300);
    }
    accept();
    answer(n % 2 ? 200 : 202);
  });
});
server.listen(0, "127.0.0.1", () => console.log("listening " + server.address().port));
