// JSON that is too large to be held: the members of the outermost object one by one, and of the one
// that is a long list, its items one by one, each as its text. And the members of such a text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/read/byte_stream.h"

namespace tracestep {

// A text that is longer is refused, so that no file takes more memory than a few of these.
inline constexpr std::size_t kMaxJsonItemBytes = std::size_t{16} << 20;

// What is called with texts of JSON values.
struct ObjectVisitor {
  std::function<void(std::string_view key, std::string_view value)> member;
  std::function<void(std::string_view item)> item;  // of the list named `list`
};

struct ObjectStreamEnd {
  std::int64_t items = 0;
  bool is_cut = false;  // the text ended before its outermost value did
};

// Reads an object, whose member `list` may be of any length, or a bare list. Values are told apart
// by their brackets and quotes alone: their texts may be no JSON. Errors: kInput naming the file
// and the byte, for a text that is neither and for an item beyond kMaxJsonItemBytes.
ObjectStreamEnd read_objects(ByteStream& bytes, std::string_view list,
                             const ObjectVisitor& visitor);

// Calls visit(key, value) with the members of an object's text, both as they stand, the key without
// its quotes. Returns false where it is no object; members before the fault have been visited.
template <class Visit>
bool for_each_json_member(std::string_view object, Visit visit);

// The number of a value's text, which may stand in quotes; nullopt for anything else.
std::optional<double> json_number(std::string_view value);
std::optional<std::int64_t> json_integer(std::string_view value);
// Milli-units of a decimal, exactly: "12.345" is 12345. Digits behind the third are dropped.
std::optional<std::int64_t> json_thousandths(std::string_view value);
// The text of a value in quotes, with its escapes resolved into `store` where it has some; of any
// other value, the text itself.
std::string_view json_text(std::string_view value, std::string& store);

// --- the walk over members ----------------------------------------------------------------------

// The place behind the value that begins at `at`; npos: it does not end.
std::size_t end_of_json_value(std::string_view text, std::size_t at);
std::size_t skip_json_space(std::string_view text, std::size_t at);

template <class Visit>
bool for_each_json_member(std::string_view object, Visit visit) {
  constexpr std::size_t kNone = std::string_view::npos;
  std::size_t at = skip_json_space(object, 0);
  if (at >= object.size() || object[at] != '{') return false;
  at = skip_json_space(object, at + 1);
  while (at < object.size() && object[at] == '"') {
    const std::size_t key_end = end_of_json_value(object, at);
    if (key_end == kNone) return false;
    const std::string_view key = object.substr(at + 1, key_end - at - 2);
    at = skip_json_space(object, key_end);
    if (at >= object.size() || object[at] != ':') return false;
    at = skip_json_space(object, at + 1);
    const std::size_t end = end_of_json_value(object, at);
    if (end == kNone || end == at) return false;
    visit(key, object.substr(at, end - at));
    at = skip_json_space(object, end);
    if (at < object.size() && object[at] == ',') at = skip_json_space(object, at + 1);
  }
  return at < object.size() && object[at] == '}';
}

}  // namespace tracestep
