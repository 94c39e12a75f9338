//! FAULTS 32, 49 and 54: each request of `docs/gateway-smuggling.md` is forwarded or refused as the page
//! says, in one piece and in many, and nginx does what the page says of it.

use crate::smuggling::page::{Page, Row, bytes};
use crate::smuggling::{ComparedNginx, Recorder, http2, outcome, shown};
use crate::support::{TestGateway, config};
use serde_json::json;
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;

fn gateway(backend: &Recorder) -> TestGateway {
    let server = format!("http://{}", backend.address);
    let config = config(
        json!([{"name": "app", "servers": [server]}]),
        json!([{"name": "all", "upstream": "app", "request_fields": {"set": {"x-user": "nobody"}}}]),
    );
    TestGateway::start(Unlimited, GatewaySettings::default(), &config)
}

/// What nginx does is compared where it is the version that the page is about.
fn nginx_says(page: &Page, nginx: &ComparedNginx, now: String, written: &str) -> String {
    if page.text().contains(&format!("nginx {} ", nginx.version)) { now } else { written.to_owned() }
}

#[test]
fn fault_32_each_request_is_forwarded_or_refused_as_the_page_says() {
    let mut page = Page::read();
    let (backend, behind_nginx) = (Recorder::start(), Recorder::start());
    let gateway = gateway(&backend);
    let nginx = ComparedNginx::start(behind_nginx.address);
    let rows = page.rows("HTTP/1.1");
    assert!(rows.len() >= 60, "{} rows", rows.len());
    let mut faults = Vec::new();
    let happened: Vec<Row> = rows
        .into_iter()
        .map(|row| {
            let request = bytes(&row.request);
            let whole = outcome(&backend, gateway.address, &request, usize::MAX);
            let pieces = outcome(&backend, gateway.address, &request, request.len() / 50 + 1);
            if whole != pieces {
                faults.push(format!("{}: {whole} in one piece, {pieces} in many", row.request));
            }
            if whole.contains("? ") {
                faults.push(format!("{}: a server doubts what it gets: {whole}", row.request));
            }
            let nginx = nginx_says(
                &page,
                &nginx,
                outcome(&behind_nginx, nginx.address, &request, usize::MAX),
                &row.nginx,
            );
            Row { gateway: whole, nginx, ..row }
        })
        .collect();
    page.compare("HTTP/1.1", &happened);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn fault_32_each_request_of_http2_is_forwarded_or_refused_as_the_page_says() {
    let mut page = Page::read();
    let (backend, behind_nginx) = (Recorder::start(), Recorder::start());
    let gateway = gateway(&backend);
    let nginx = ComparedNginx::start(behind_nginx.address);
    let outcome = |backend: &Recorder, address, request: &[u8]| {
        let (status, is_open) = http2::exchange(address, request);
        let mut seen = backend.take();
        seen.retain(|seen| seen != "GET /next");
        shown(&seen, &[status], if is_open { "" } else { " closed" })
    };
    let mut faults = Vec::new();
    let happened: Vec<Row> = page
        .rows("HTTP/2")
        .into_iter()
        .map(|row| {
            let request = bytes(&row.request);
            let here = outcome(&backend, gateway.address, &request);
            if here.contains("? ") {
                faults.push(format!("{}: a server doubts what it gets: {here}", row.request));
            }
            let nginx = nginx_says(&page, &nginx, outcome(&behind_nginx, nginx.http2, &request), &row.nginx);
            Row { gateway: here, nginx, ..row }
        })
        .collect();
    page.compare("HTTP/2", &happened);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
