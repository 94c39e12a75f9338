//! Questions of the admin API to the gateway: explanations of routes, and counts of requests.

use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use serde_json::Value;
use tidegate_admin::api::{CountedAnswer, CountedRequests, ExplainRoute, NoAnswer, NoExplanation};
use tidegate_control::Control;
use tidegate_gateway::analytics::{Analytics, AnalyticsQuery, QueryMistake};
use tidegate_gateway::explain::Question;
use tidegate_gateway::service::Gateway;
use tidegate_net::clock::wall;

const ACCEPTED: &str = "host, path, method, client_ip, header.NAME, each once but the last";

/// The gateway, as the admin API asks it.
#[derive(Debug)]
pub(super) struct ExplainedRoutes(pub(super) Arc<Gateway>);

impl ExplainRoute for ExplainedRoutes {
    fn explain<'a>(
        &'a self,
        parameters: &'a [(String, String)],
    ) -> Pin<Box<dyn Future<Output = Result<Value, NoExplanation>> + Send + 'a>> {
        Box::pin(async move {
            let explained = self.0.explain(question(parameters)?).await;
            let explained = explained.map_err(|error| NoExplanation {
                parameter: "path".to_owned(),
                problem: error.to_string(),
                accepted: "a path that has one reading",
            })?;
            // Plain structs with string keys always serialise.
            Ok(serde_json::to_value(explained).unwrap_or_default())
        })
    }
}

/// Its counted requests, as the admin API asks for them.
#[derive(Debug)]
pub(super) struct GatewayAnalytics {
    pub(super) analytics: Arc<Analytics>,
    /// Where they are kept.
    pub(super) control: Control,
}

impl CountedRequests for GatewayAnalytics {
    fn answer<'a>(
        &'a self,
        parameters: &'a [(String, String)],
    ) -> Pin<Box<dyn Future<Output = Result<CountedAnswer, NoAnswer>> + Send + 'a>> {
        Box::pin(async move {
            let query = AnalyticsQuery::read(parameters, wall()).map_err(|mistake| {
                let QueryMistake { parameter, problem, accepted } = mistake;
                NoAnswer::Question(NoExplanation { parameter, problem, accepted })
            })?;
            let (analytics, wants_csv) = (self.analytics.clone(), query.wants_csv);
            let made = self.control.run(move |control| {
                let answer = analytics.answer(control, &query);
                match &answer.lacks_stored {
                    // A table has no place to say what it lacks.
                    Some(why) if wants_csv => Ok(Err(NoAnswer::Away(why.to_string()))),
                    _ if wants_csv => Ok(Ok(CountedAnswer::Csv(answer.csv()))),
                    _ => Ok(Ok(CountedAnswer::Json(answer.json()))),
                }
            });
            made.await.map_err(|why| NoAnswer::Away(why.to_string()))?
        })
    }
}

fn question(parameters: &[(String, String)]) -> Result<Question, NoExplanation> {
    let mut question = Question {
        method: Method::GET,
        host: String::new(),
        target: Uri::from_static("/"),
        fields: HeaderMap::new(),
        client: IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    for (index, (name, value)) in parameters.iter().enumerate() {
        let wrong = |problem: &str, accepted| NoExplanation {
            parameter: name.clone(),
            problem: format!("is {value:?}, {problem}"),
            accepted,
        };
        if let Some(field) = name.strip_prefix("header.") {
            let accepted = "header.NAME=VALUE";
            let field =
                HeaderName::from_bytes(field.as_bytes()).map_err(|_| wrong("in no field", accepted))?;
            let value = HeaderValue::from_str(value).map_err(|_| wrong("which is no value", accepted))?;
            question.fields.append(field, value);
            continue;
        }
        if parameters[..index].iter().any(|(other, _)| other == name) {
            return Err(wrong("and there before", ACCEPTED));
        }
        match name.as_str() {
            "host" => question.host.clone_from(value),
            "path" => {
                let target = Some(value).filter(|value| value.starts_with('/'));
                let target = target.and_then(|value| value.parse().ok());
                question.target =
                    target.ok_or_else(|| wrong("which is no path", "a path: /api/users/7?x=1"))?;
            }
            "method" => {
                let method = Method::from_bytes(value.as_bytes());
                question.method = method.map_err(|_| wrong("which is no method", "a method: GET"))?;
            }
            "client_ip" => {
                question.client = value.parse().map_err(|_| wrong("which is no address", "an IP address"))?;
            }
            _ => return Err(wrong("which nothing asks for", ACCEPTED)),
        }
    }
    Ok(question)
}
