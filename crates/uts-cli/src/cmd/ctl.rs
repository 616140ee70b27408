//! `uts ctl`: a tunnel or a server that runs, looked at and changed.

use super::Failure;
use crate::args::{CtlArgs, CtlCommand};
use crate::control::{Request, ask, property};
use crate::ui::lines;
use serde_json::Value;
use uts_units::show;

/// Asks the tunnel or the server, and prints what it says.
///
/// # Errors
/// See [`Failure`].
pub async fn run(args: &CtlArgs) -> Result<(), Failure> {
    let request = match &args.command {
        None | Some(CtlCommand::List) => Request::List,
        Some(CtlCommand::Set { property: text, forward, client }) => {
            property(text, forward.clone(), *client).map_err(Failure::Usage)?
        }
        Some(CtlCommand::Audit) => Request::Audit,
        Some(CtlCommand::End { id }) => Request::End { id: *id },
    };
    let answer = ask(&args.socket, &request).await.map_err(Failure::Failed)?;
    if args.json {
        lines::print_json(answer);
    } else if request == Request::Audit {
        lines::print(&audit(&answer));
    } else if request == Request::List {
        let table = match &answer {
            session if session.get("session").is_some() => crate::cmd::ssh::line(session) + "\n",
            server if server.get("server").is_some() => server_table(server),
            tunnel => table(tunnel),
        };
        lines::print(&(table + &bugs_line(&answer["bugs"])));
    }
    Ok(())
}

/// Line about faults of the program, if it has seen any.
fn bugs_line(bugs: &Value) -> String {
    match bugs["count"].as_u64() {
        None | Some(0) => String::new(),
        Some(count) => {
            let first = bugs["first"].as_str().unwrap_or_default();
            format!("{count} faults of this program, the first: {first}. Please report it.\n")
        }
    }
}

/// List of the clients of a server, and of its resources, for people.
fn server_table(answer: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let clients = all(&answer["clients"]);
    let count = if clients.len() == 1 { "1 client".to_owned() } else { format!("{} clients", clients.len()) };
    let mut out = format!("{}: {count}\n", text(&answer["server"]));
    for client in &clients {
        let key = client["key"].as_str().unwrap_or("no key");
        let (id, seconds) = (&client["id"], &client["seconds"]);
        let line =
            format!("  {id} {} {}, {key}, {seconds} s\n", text(&client["address"]), text(&client["service"]));
        out.push_str(&line);
        out.push_str(&costs(client));
        out.push_str(&streams(client));
    }
    for lost in all(&answer["kept"]) {
        let key = lost["key"].as_str().unwrap_or("no key");
        out.push_str(&format!("  {}, {key}, not connected\n", text(&lost["address"])));
        out.push_str(&streams(&lost));
    }
    for resource in all(&answer["resources"]) {
        let is_memory = resource["resource"] == "memory";
        let amount = |value: &Value| {
            let amount = value.as_u64().unwrap_or_default();
            if is_memory { show::bytes(amount) } else { amount.to_string() }
        };
        let most = all(&resource["payers"]).first().map_or_else(String::new, |payer| {
            format!("; {} has {}", text(&payer["name"]), amount(&payer["held"]))
        });
        let waiting = match resource["waiting"].as_u64() {
            None | Some(0) => String::new(),
            Some(waiting) => format!(", {waiting} wait"),
        };
        let (held, total) = (amount(&resource["held"]), amount(&resource["total"]));
        out.push_str(&format!("{} {held} of {total}{waiting}{most}\n", text(&resource["resource"])));
    }
    let known: Vec<String> = all(&answer["host_facts"])
        .iter()
        .filter(|fact| fact["value"] != uts::host::UNKNOWN)
        .map(|fact| format!("{}={}", text(&fact["name"]), text(&fact["value"])))
        .collect();
    if !known.is_empty() {
        out.push_str(&format!("{}\n", known.join(" ")));
    }
    out
}

/// Streams of a client, a line each.
fn streams(client: &Value) -> String {
    let line = |carried: &Value| {
        let bytes = |name: &str| show::bytes(carried[name].as_u64().unwrap_or_default());
        let dropped = match carried["dropped"].as_u64() {
            None | Some(0) => String::new(),
            Some(dropped) => format!(", {dropped} dropped"),
        };
        format!(
            "    {} {}, {} s, {} in, {} out{dropped}\n",
            carried["id"],
            carried["to"].as_str().unwrap_or_default(),
            carried["seconds"],
            bytes("bytes_received"),
            bytes("bytes_sent"),
        )
    };
    client["carried"].as_array().into_iter().flatten().map(line).collect()
}

/// Bytes that a client has carried, figures of its path, and its last exchange, a line each.
fn costs(client: &Value) -> String {
    let number = |name: &str| client[name].as_f64().unwrap_or_default();
    let bytes = |name: &str| show::bytes(client[name].as_u64().unwrap_or_default());
    let profile = client["profile"].as_str().unwrap_or_default();
    let mut out = format!(
        "    {} in, {} out, {}; RTT {:.1} ms, loss {:.2} %, exchanges {}; {profile}\n",
        bytes("bytes_in"),
        bytes("bytes_out"),
        show::bits_per_second(number("rate_bps")),
        number("rtt_ms"),
        number("loss") * 100.0,
        client["exchanges"],
    );
    if let Some(sentence) = sentence(&client["last_exchange"]) {
        out.push_str(&format!("    {sentence}\n"));
    }
    out.push_str(&numbers("    ", client));
    out
}

/// Line on the numbers of mechanisms, if the two ends of a connection have different ones.
fn numbers(indent: &str, connection: &Value) -> String {
    let difference = connection["numbers_difference"].as_str();
    difference.map_or_else(String::new, |difference| format!("{indent}numbers: {difference}\n"))
}

/// The last exchange as a sentence, if there was one.
pub(super) fn sentence(exchange: &Value) -> Option<String> {
    let part = |name: &str| exchange[name].as_str().filter(|text| !text.is_empty());
    part("changed")?;
    let words = [("saw", "saw"), ("changed", "changed"), ("expects", "expects"), ("brought", "brought")];
    let parts = words.map(|(name, word)| part(name).map(|text| format!("{word} {text}")));
    Some(parts.into_iter().flatten().collect::<Vec<_>>().join("; "))
}

/// The account of a server, a client and a place each line, the last that was met first.
fn audit(answer: &Value) -> String {
    let mut out = String::new();
    for row in answer["audit"].as_array().into_iter().flatten() {
        let text = |name: &str| row[name].as_str().unwrap_or_default();
        let bytes = |name: &str| show::bytes(row[name].as_u64().unwrap_or_default());
        let (came, went) = (bytes("bytes_in"), bytes("bytes_out"));
        out.push_str(&format!(
            "{} {}: {} times, {came} in, {went} out, refused {} times; {} to {}\n",
            text("client"),
            text("place"),
            row["reached"],
            row["refused"],
            text("first"),
            text("last"),
        ));
    }
    match answer["forgotten"].as_u64() {
        None | Some(0) => {}
        Some(forgotten) => out.push_str(&format!("{forgotten} more are forgotten\n")),
    }
    if out.is_empty() { "nobody was led anywhere\n".to_owned() } else { out }
}

/// A list for people.
fn table(answer: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let asked = |value: &Value| {
        let words = all(value).iter().map(|pair| format!(" {}={}", text(&pair[0]), text(&pair[1]))).collect();
        std::iter::once(words).filter(|words: &String| !words.is_empty()).collect::<String>()
    };
    let mut out = match &answer["connection"] {
        Value::Null => format!("{}: not connected\n", text(&answer["host"])),
        connection => format!(
            "{}: RTT {:.1} ms, loss {:.2} %, exchanges {};{}\n  out {}\n  in {}\n{}",
            text(&answer["host"]),
            connection["rtt_ms"].as_f64().unwrap_or_default(),
            connection["loss"].as_f64().unwrap_or_default() * 100.0,
            connection["exchanges"],
            asked(&connection["properties"]),
            text(&connection["profile_out"]),
            text(&connection["profile_in"]),
            numbers("  ", connection),
        ),
    };
    if let media @ Value::Object(_) = &answer["media"] {
        let words = crate::media::board::words(media);
        out.push_str(&format!("{} as {}: {words}\n", text(&media["place"]), text(&media["name"])));
    }
    for forward in all(&answer["forwards"]) {
        let line = format!(
            "{} to {}{}\n",
            text(&forward["name"]),
            text(&forward["to"]),
            asked(&forward["properties"])
        );
        out.push_str(&line);
        for carried in all(&answer["carried"]).iter().filter(|carried| carried["forward"] == forward["name"])
        {
            let bytes = |name: &str| show::bytes(carried[name].as_u64().unwrap_or_default());
            let line = format!(
                "  {} {} to {}, flow {} of priority {}, {} s, {} out, {} in; out {}\n",
                carried["id"],
                text(&carried["from"]),
                text(&carried["to"]),
                carried["flow"],
                carried["priority"],
                carried["seconds"],
                bytes("bytes_sent"),
                bytes("bytes_received"),
                text(&carried["profile_out"]),
            );
            out.push_str(&line);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client's and a tunnel's connection have a line on it, and none where nothing differs.
    #[test]
    fn numbers_that_differ_are_a_line() {
        let connection = |difference: Value| serde_json::json!({"numbers_difference": difference});
        let line = "numbers: fec/none is 3 here and 2 there";
        let differs = connection("fec/none is 3 here and 2 there".into());
        assert!(costs(&differs).ends_with(&format!("\n    {line}\n")), "{}", costs(&differs));
        let tunnel = table(&serde_json::json!({"host": "h", "connection": differs}));
        assert!(tunnel.ends_with(&format!("\n  {line}\n")), "{tunnel}");
        assert_eq!(numbers("", &connection(Value::Null)), "");
    }

    #[test]
    fn faults_of_the_program_are_a_line_where_there_are_any() {
        assert_eq!(bugs_line(&crate::control::bugs()), "");
        let line = bugs_line(&serde_json::json!({"count": 2, "first": "flow 3 is gone (a.rs:7)"}));
        assert_eq!(line, "2 faults of this program, the first: flow 3 is gone (a.rs:7). Please report it.\n");
    }
}
