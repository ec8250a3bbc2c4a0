// Json over nlohmann-json: its SAX parser (UTF-8 checks, iterative, so hostile nesting costs no
// stack) feeds a builder of our own that rejects duplicate keys and keeps integers exact.
#include "base/json.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tracestep {
namespace {

// Deeper files are an attack or an accident; destroying and writing a value recurses this deep.
constexpr std::size_t kMaxDepth = 256;
constexpr std::size_t kMaxMessageBytes = 200;

const char* type_name(const Json& json) {
  if (json.is_null()) return "null";
  if (json.is_bool()) return "a boolean";
  if (json.is_int()) return "an integer";
  if (json.is_number()) return "a real number";
  if (json.is_string()) return "a string";
  if (json.is_array()) return "an array";
  return "an object";
}

[[noreturn]] void fail_type(const Json& json, const char* wanted) {
  fail_input("json", "{} where {} is needed", type_name(json), wanted);
}

// The library's message without its "[json.exception...] parse error at line...: " head, and cut:
// it quotes the last token, which may be as long as the file.
std::string short_message(std::string_view message) {
  if (const std::size_t end = message.find("column "); end != std::string_view::npos) {
    if (const std::size_t colon = message.find(": ", end); colon != std::string_view::npos) {
      message.remove_prefix(colon + 2);
    }
  }
  if (message.size() <= kMaxMessageBytes) return std::string(message);
  std::size_t cut = kMaxMessageBytes;
  while (cut > 0 && (static_cast<unsigned char>(message[cut]) & 0xc0u) == 0x80u) --cut;
  return std::string(message.substr(0, cut)) + "...";
}

// Receives the parser's events and builds the value bottom-up. Every event returns true to go on.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(const std::string& where) : where_(where) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(Json()); }
  bool boolean(bool v) override { return add(Json(v)); }
  bool number_integer(number_integer_t v) override { return add(Json(std::int64_t{v})); }
  bool number_unsigned(number_unsigned_t v) override {
    // Beyond int64 only a double can hold it; as_int() then refuses it rather than wrapping.
    if (v > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return add(Json(static_cast<double>(v)));
    }
    return add(Json(static_cast<std::int64_t>(v)));
  }
  bool number_float(number_float_t v, const string_t&) override { return add(Json(v)); }
  bool string(string_t& v) override { return add(Json(std::move(v))); }
  bool binary(binary_t&) override { fail_input(where_, "binary values are not JSON"); }

  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& v) override {
    Frame& frame = stack_.back();
    if (!frame.keys.insert(v).second) {
      fail_input(where_, "not valid JSON: the key \"{}\" occurs twice in one object",
                 short_message(v));
    }
    frame.key = std::move(v);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& e) override {
    fail_input(where_, "not valid JSON at byte {}: {}", position, short_message(e.what()));
  }

 private:
  struct Frame {
    bool is_object;
    std::string key;
    std::unordered_set<std::string> keys;
    Json::Object members;
    Json::Array items;
  };

  bool open(bool is_object) {
    if (stack_.size() == kMaxDepth) {
      fail_input(where_, "JSON nested deeper than {} levels", kMaxDepth);
    }
    stack_.push_back({is_object, {}, {}, {}, {}});
    return true;
  }

  bool close() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    return add(frame.is_object ? Json(std::move(frame.members)) : Json(std::move(frame.items)));
  }

  bool add(Json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
    } else if (Frame& frame = stack_.back(); frame.is_object) {
      frame.members.emplace_back(std::move(frame.key), std::move(value));
    } else {
      frame.items.push_back(std::move(value));
    }
    return true;
  }

  std::string where_;
  std::vector<Frame> stack_;
  Json root_;
};

void write_double(double v, std::string& out) {
  if (!std::isfinite(v)) {
    out += "null";
    return;
  }
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, v).ptr;
  const std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  out += text;
  // A real number stays one when it is read back.
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void write_string(const std::string& v, std::string& out) {
  out += nlohmann::json(v).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool is_scalar(const Json& json) {
  return !json.is_array() && !json.is_object();
}

class Writer {
 public:
  Writer(int indent, std::string& out) : indent_(indent), out_(out) {}

  void write(const Json& json, int depth) {
    if (json.is_object()) return write_object(json.members(), depth);
    if (json.is_array()) return write_array(json.items(), depth);
    if (json.is_null()) {
      out_ += "null";
    } else if (json.is_bool()) {
      out_ += json.as_bool() ? "true" : "false";
    } else if (json.is_int()) {
      out_ += std::to_string(json.as_int());
    } else if (json.is_string()) {
      write_string(json.as_string(), out_);
    } else {
      write_double(json.as_double(), out_);
    }
  }

 private:
  void write_object(const Json::Object& members, int depth) {
    out_ += '{';
    bool first = true;
    for (const auto& [key, value] : members) {
      if (!first) out_ += ',';
      first = false;
      new_line(depth + 1);
      write_string(key, out_);
      out_ += indent_ < 0 ? ":" : ": ";
      write(value, depth + 1);
    }
    if (!members.empty()) new_line(depth);
    out_ += '}';
  }

  // Arrays of scalars (shapes, samples) stay on one line: a column of numbers is no help.
  void write_array(const Json::Array& items, int depth) {
    const bool flat = std::all_of(items.begin(), items.end(), is_scalar);
    out_ += '[';
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += flat && indent_ >= 0 ? ", " : ",";
      if (!flat) new_line(depth + 1);
      write(items[i], depth + 1);
    }
    if (!flat) new_line(depth);
    out_ += ']';
  }

  void new_line(int depth) {
    if (indent_ < 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(indent_ * depth), ' ');
  }

  int indent_;
  std::string& out_;
};

}  // namespace

bool Json::as_bool() const {
  if (!is_bool()) fail_type(*this, "a boolean");
  return std::get<bool>(value_);
}

std::int64_t Json::as_int() const {
  if (!is_int()) fail_type(*this, "a 64-bit integer");
  return std::get<std::int64_t>(value_);
}

double Json::as_double() const {
  if (is_int()) return static_cast<double>(std::get<std::int64_t>(value_));
  if (!is_number()) fail_type(*this, "a number");
  return std::get<double>(value_);
}

const std::string& Json::as_string() const {
  if (!is_string()) fail_type(*this, "a string");
  return std::get<std::string>(value_);
}

const Json::Array& Json::items() const {
  if (!is_array()) fail_type(*this, "an array");
  return std::get<Array>(value_);
}

const Json::Object& Json::members() const {
  if (!is_object()) fail_type(*this, "an object");
  return std::get<Object>(value_);
}

const Json* Json::find(std::string_view key) const {
  for (const auto& [name, value] : members()) {
    if (name == key) return &value;
  }
  return nullptr;
}

const Json& Json::at(std::string_view key) const {
  if (const Json* value = find(key)) return *value;
  fail_input("json", "the member \"{}\" is missing", key);
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_ = Object{};
  if (!is_object()) fail_type(*this, "an object");
  auto& object = std::get<Object>(value_);
  for (auto& [name, value] : object) {
    if (name == key) return value;
  }
  return object.emplace_back(std::string(key), Json()).second;
}

void Json::push_back(Json v) {
  if (is_null()) value_ = Array{};
  if (!is_array()) fail_type(*this, "an array");
  std::get<Array>(value_).push_back(std::move(v));
}

std::size_t Json::size() const {
  if (is_object()) return members().size();
  return items().size();
}

std::string Json::dump(int indent) const {
  std::string out;
  Writer(indent, out).write(*this, 0);
  return out;
}

Json Json::parse(std::string_view text, const std::string& where) {
  Builder builder(where);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace tracestep
