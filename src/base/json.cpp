// Builds Json values from the parser's events: duplicate keys are refused, integers stay exact, and
// the memory of the values is at most a small multiple of the text's.
#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_events.h"
#include "base/utf8.h"

namespace tracestep {
namespace {

constexpr std::size_t kMemoryPerByte = 3, kMemoryBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxNameBytes = 200;

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

// Receives the parser's events and builds the value bottom-up.
class Builder : public JsonEvents {
 public:
  Builder(const std::string& where, std::size_t text_bytes)
      : where_(where), left_(kMemoryPerByte * text_bytes + kMemoryBytes) {}

  Json take() { return std::move(root_); }

  void null() override { add(Json()); }
  void boolean(bool v) override { add(Json(v)); }
  void integer(std::int64_t v) override { add(Json(v)); }
  void real(double v) override { add(Json(v)); }
  void text(std::string& v) override {
    charge(v.size());
    add(Json(std::move(v)));
  }
  void key(std::string& v) override {
    charge(v.size() + 2 * sizeof v);
    stack_.back().key = std::move(v);
  }
  void begin_object() override { stack_.push_back({.is_object = true}); }
  void begin_array() override { stack_.push_back({.is_object = false}); }
  void end_object() override { close(); }
  void end_array() override { close(); }

 private:
  struct Frame {
    bool is_object;
    std::string key = {};
    Json::Object members = {};
    Json::Array items = {};
  };

  // Counts bytes of values against the limit, and throws beyond it: short values take more memory
  // than their text ("[0,0,0,…").
  void charge(std::size_t bytes) {
    if (bytes > left_) {
      fail_input(where_, "its values need more than {} times its size in memory", kMemoryPerByte);
    }
    left_ -= bytes;
  }

  void close() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    if (frame.is_object) check_keys(frame.members);
    frame.members.shrink_to_fit();
    frame.items.shrink_to_fit();
    add(frame.is_object ? Json(std::move(frame.members)) : Json(std::move(frame.items)));
  }

  void check_keys(const Json::Object& members) const {
    std::vector<std::string_view> keys;
    keys.reserve(members.size());
    for (const auto& [key, value] : members) keys.emplace_back(key);
    std::ranges::sort(keys);
    const auto twice = std::ranges::adjacent_find(keys);
    if (twice == keys.end()) return;
    fail_input(where_, "not valid JSON: the key \"{}\" occurs twice in one object",
               message_line(*twice, kMaxNameBytes));
  }

  void add(Json value) {
    charge(2 * sizeof value);  // a vector that grows holds twice what is in it
    if (stack_.empty()) {
      root_ = std::move(value);
    } else if (Frame& frame = stack_.back(); frame.is_object) {
      frame.members.emplace_back(std::move(frame.key), std::move(value));
    } else {
      frame.items.push_back(std::move(value));
    }
  }

  const std::string& where_;
  std::size_t left_;  // bytes of memory
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
  // Without a point or an exponent it would be read back as an integer.
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

  // Writes an array on one line if it has only scalars (a shape, samples), else one element a line.
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

Json::Json() = default;
Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

Json::Json(bool v) : value_(v) {}
Json::Json(int v) : value_(static_cast<std::int64_t>(v)) {}
Json::Json(std::int64_t v) : value_(v) {}
Json::Json(std::uint64_t v) : value_(static_cast<std::int64_t>(v)) {}
Json::Json(double v) : value_(v) {}
Json::Json(const char* v) : value_(std::string(v)) {}
Json::Json(std::string v) : value_(std::move(v)) {}
Json::Json(std::string_view v) : value_(std::string(v)) {}
Json::Json(Array v) : value_(std::move(v)) {}
Json::Json(Object v) : value_(std::move(v)) {}

Json Json::array() {
  return Json(Array{});
}
Json Json::object() {
  return Json(Object{});
}

bool operator==(const Json& a, const Json& b) {
  return a.value_ == b.value_;
}

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
  Builder builder(where, text.size());
  parse_json(text, where, builder);
  return builder.take();
}

}  // namespace tracestep
