package io.github.tidegate;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * What a server answers instead of a result (RFC 9457).
 *
 * @param type its kind, a URI
 * @param title the kind's or the status's title
 * @param status the HTTP status
 * @param detail one sentence on this occurrence
 * @param errors mistakes in what was sent
 * @param violatedPolicies names of the policies that denied
 */
public record Problem(
    String type,
    String title,
    int status,
    String detail,
    List<FieldError> errors,
    List<String> violatedPolicies) {

  /**
   * One mistake.
   *
   * @param pointer where, as a JSON pointer
   * @param detail what is wrong
   * @param accepted what would be right
   */
  public record FieldError(String pointer, String detail, Optional<String> accepted) {}

  /** A problem that says no more than its status. */
  static Problem plain(int status, String title, String detail) {
    return new Problem("about:blank", title, status, detail, List.of(), List.of());
  }

  /** What a reply says; its status alone if it is no problem document. */
  static Problem read(int status, byte[] body) {
    try {
      Json.Members members = Json.Members.of(Json.read(body));
      List<FieldError> errors = new ArrayList<>();
      if (members.members().get("errors") != null) {
        for (Object item : members.needList("errors")) {
          Json.Members error = Json.Members.of(item);
          errors.add(
              new FieldError(
                  error.needText("pointer"), error.needText("detail"), error.text("accepted")));
        }
      }
      return new Problem(
          members.needText("type"),
          members.needText("title"),
          status,
          members.needText("detail"),
          List.copyOf(errors),
          members.texts("violated-policies"));
    } catch (Json.Malformed none) {
      return plain(status, "HTTP " + status, "the reply has no problem document");
    }
  }

  /** The document. */
  public String toJson() {
    Map<String, Object> members = new LinkedHashMap<>();
    members.put("type", type);
    members.put("title", title);
    members.put("status", status);
    members.put("detail", detail);
    if (!violatedPolicies.isEmpty()) {
      members.put("violated-policies", violatedPolicies);
    }
    return Json.write(members);
  }
}
