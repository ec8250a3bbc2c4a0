// JSON that is too large to be held: the members of the outermost object one by one, and of the one
// that is a long list, its items one by one, each as its text. And the members of such a text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "lab/read/byte_stream.h"

namespace tracestep {

// A text that is longer is refused, so that no file takes more memory than a few of these.
inline constexpr std::size_t kMaxJsonItemBytes = std::size_t{16} << 20;

// Is called with the texts of JSON values.
struct JsonVisitor {
  std::function<void(std::string_view key, std::string_view value)> member;
  std::function<void(std::string_view item)> item;  // of the list named `list`
};

// Reads an object, whose member `list` may be of any length, or a bare list. Values are told apart
// by their brackets and quotes alone: their texts may be no JSON. Returns false where the text ends
// before its outermost value does. Errors: kInput naming the file and the byte, for a text that is
// neither and for an item beyond kMaxJsonItemBytes.
bool read_json(ByteStream& bytes, std::string_view list, const JsonVisitor& visitor);

// Calls visit(key, value) with the members of an object's text, both as they stand, the key without
// its quotes. Returns false where it is no object; members before the fault have been visited.
template <class Visit>
bool for_each_json_member(std::string_view object, Visit visit);

std::string_view unquoted(std::string_view value);
// The number of a value's text, which may stand in quotes; nullopt for anything else.
std::optional<std::int64_t> json_integer(std::string_view value);
// Milli-units of a decimal, exactly: "12.345" is 12345. Digits behind the third are dropped.
std::optional<std::int64_t> json_thousandths(std::string_view value);
// The text of a value in quotes, with its escapes resolved; of any other value, the text itself.
std::string unescaped(std::string_view value);

// --- the walk over members ----------------------------------------------------------------------

// The place behind the value that begins at `at`; npos: it does not end.
std::size_t end_of_json_value(std::string_view text, std::size_t at);
std::size_t skip_json_space(std::string_view text, std::size_t at);

template <class Visit>
bool for_each_json_member(std::string_view object, Visit visit) {
  std::size_t at = skip_json_space(object, 0);
  if (at >= object.size() || object[at] != '{') return false;
  at = skip_json_space(object, at + 1);
  while (at < object.size() && object[at] == '"') {
    const std::size_t key_end = end_of_json_value(object, at);
    const std::string_view key = object.substr(at + 1, key_end - at - 2);
    at = skip_json_space(object, key_end);
    if (at >= object.size() || object[at] != ':') return false;
    at = skip_json_space(object, at + 1);
    const std::size_t end = end_of_json_value(object, at);
    if (end == std::string_view::npos || end == at) return false;
    visit(key, object.substr(at, end - at));
    at = skip_json_space(object, end);
    if (at < object.size() && object[at] == ',') at = skip_json_space(object, at + 1);
  }
  return at < object.size() && object[at] == '}';
}

}  // namespace tracestep
