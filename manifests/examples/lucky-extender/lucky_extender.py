"""An HTTP extender with random results and scores for every node: python lucky_extender.py 8888."""

import json
import random
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def filter_nodes(args):
    lucky = [name for name in args["NodeNames"] if random.random() < 0.5]
    failed = {name: "well, not lucky" for name in args["NodeNames"] if name not in lucky}
    return {"NodeNames": lucky, "FailedNodes": failed}


def prioritize(args):
    return [{"Host": name, "Score": random.randint(0, 10)} for name in args["NodeNames"]]


class Lucky(BaseHTTPRequestHandler):
    def do_POST(self):
        args = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {"/filter": filter_nodes, "/prioritize": prioritize}[self.path](args)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Lucky).serve_forever()
