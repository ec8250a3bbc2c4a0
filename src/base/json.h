// A JSON value with ordered object keys. The parser and the writer are nlohmann-json, kept behind
// this header because every file that includes that library takes seconds to compile. For the same
// reason, nothing that makes, copies or destroys the variant is inline.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tracestep {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  Json();
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();
  Json(bool v);
  Json(int v);
  Json(std::int64_t v);
  Json(std::uint64_t v);
  Json(double v);
  Json(const char* v);
  Json(std::string v);
  Json(std::string_view v);
  Json(Array v);
  Json(Object v);

  static Json array();
  static Json object();

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<std::int64_t>(value_); }
  bool is_number() const { return is_int() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  // Return the value as the type in their names; each throws Error{kInput} if it has another type.
  bool as_bool() const;
  std::int64_t as_int() const;
  double as_double() const;
  const std::string& as_string() const;
  const Array& items() const;
  const Object& members() const;

  // Returns the member `key`, or nullptr; O(members).
  const Json* find(std::string_view key) const;
  // Returns the member `key`; Error{kInput} naming the key when it is missing.
  const Json& at(std::string_view key) const;
  // Returns the member `key` of an object, added (as null) when missing.
  Json& operator[](std::string_view key);
  void push_back(Json v);
  std::size_t size() const;

  // Returns the value as JSON text; `indent` < 0 gives one line. NaN and infinities become null.
  std::string dump(int indent = -1) const;
  // Parses a text. Throws Error{kInput} with byte position, also for duplicate keys and trailing
  // text. `where` names the file for the message.
  static Json parse(std::string_view text, const std::string& where);

  friend bool operator==(const Json& a, const Json& b);

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> value_;
};

}  // namespace tracestep
