"""`python3 -m uts_interop client|server|vectors|suite`."""

import argparse
import sys

from . import programs, vectors


def shared(parser):
    parser.add_argument("--first", action="append", default=[], type=programs.parse_choice,
                        metavar="FUNCTION=MECHANISM", help="mechanism of the first profile, in both directions")
    parser.add_argument("--ask-sending", action="append", default=[], type=programs.parse_choice,
                        metavar="FUNCTION=MECHANISM", help="exchange a mechanism of what this end sends")
    parser.add_argument("--ask-receiving", action="append", default=[], type=programs.parse_choice,
                        metavar="FUNCTION=MECHANISM", help="exchange a mechanism of what this end receives")
    parser.add_argument("--consent", action="append", default=[], type=programs.parse_mechanism,
                        metavar="FUNCTION/MECHANISM", help="mechanism that the peer may ask for")
    parser.add_argument("--idle", type=float, default=30.0, help="idle time-out in seconds")
    parser.add_argument("--seed", type=int, help="seed of the packet numbers that are left out")
    parser.add_argument("--time", type=float, default=60.0, help="seconds after which the program ends")


def arguments():
    parser = argparse.ArgumentParser(prog="uts_interop", description="A second implementation of UTS.")
    commands = parser.add_subparsers(dest="command", required=True)
    client = commands.add_parser("client", help="carry standard input and output to a service behind a server")
    client.add_argument("server", help="HOST:PORT", type=programs.parse_server)
    client.add_argument("service", nargs="?", default="echo")
    client.add_argument("--pin", help="fingerprint of the server's key (SHA256:...); without it any key is taken")
    client.add_argument("--key", action="store_true", help="show a key of this client's, made anew")
    client.add_argument("--patience", type=float, default=10.0, help="seconds to wait for the first answer")
    shared(client)
    server = commands.add_parser("server", help="serve a stream that says back what it hears, called echo")
    server.add_argument("--host", default="127.0.0.1")
    server.add_argument("--port", type=int, default=0)
    server.add_argument("--retry", action="store_true", help="prove the addresses of clients first, by a Retry")
    server.add_argument("--want-client", action="store_true", help="ask clients for their key")
    shared(server)
    commands.add_parser("vectors", help="check spec/vectors")
    suite = commands.add_parser("suite", help="run against the stock programs")
    suite.add_argument("program", help="path of the stock program, uts")
    suite.add_argument("--only", help="cases whose name has this in it")
    suite.add_argument("--jobs", type=int, default=2, help="processes side by side")
    suite.add_argument("--part", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = arguments()
    if options.command == "client":
        return programs.client(options)
    if options.command == "server":
        return programs.server(options)
    if options.command == "vectors":
        count, wrong = vectors.main()
        print(f"{count - len(wrong)} of {count} vectors hold")
        print("\n".join(wrong), end="\n" if wrong else "")
        return 1 if wrong else 0
    from . import suite

    return suite.main(options)


sys.exit(main())
