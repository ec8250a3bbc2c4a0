// Reads JSON that is too large for memory: visits the members of the outermost object one by one
// and, for one member that is a long list, its items one by one, each as text. Also visits the
// members of an object in such a text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "lab/read/byte_stream.h"

namespace tracestep {

// The longest text of a member or item; longer ones are refused, so that no file takes more memory
// than a few of these.
inline constexpr std::size_t kMaxJsonItemBytes = std::size_t{16} << 20;

// Functions that are called with the texts of JSON values.
struct JsonVisitor {
  std::function<void(std::string_view key, std::string_view value)> member;
  // Called for each item of the list named `list`.
  std::function<void(std::string_view item)> item;
};

// Reads an object whose member `list` may have any length, or a bare list. Values are separated by
// brackets and quotes only, so their texts need not be valid JSON. Returns false if the text ends
// before its outermost value does. Throws Error{kInput} naming the file and the byte for text that
// is neither, and for an item larger than kMaxJsonItemBytes.
bool read_json(ByteStream& bytes, std::string_view list, const JsonVisitor& visitor);

// Calls visit(key, value) for each member of an object's text; both are texts, the key without its
// quotes. Returns false if the text is no object; members before the fault have been visited.
template <class Visit>
bool for_each_json_member(std::string_view object, Visit visit);

std::string_view unquoted(std::string_view value);
// The integer in a value's text, with or without quotes; nullopt for anything else.
std::optional<std::int64_t> json_integer(std::string_view value);
// Reads a decimal in thousandths, exactly: "12.345" is 12345. Further digits are dropped.
std::optional<std::int64_t> json_thousandths(std::string_view value);
// The text of a value in quotes, with its escapes resolved; of any other value, the text itself.
std::string unescaped(std::string_view value);

// --- the walk over members ----------------------------------------------------------------------

// The position after the value that begins at `at`; npos: the value does not end.
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
