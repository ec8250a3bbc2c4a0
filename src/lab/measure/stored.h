// Converts results to JSON and back, bit for bit, for the file of finished cells. A struct
// becomes an array of its members: those in the std::tie() of its function stored_members().
// So only the build that wrote a row can read it. A number that JSON lacks comes back as
// NaN.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace tracestep {
namespace stored {

template <class T>
concept HasMembers = requires(T& value) {
  stored_members(value);
};
template <class T>
concept IsOptional = std::same_as<T, std::optional<typename T::value_type>>;
template <class T>
concept IsMap = requires {
  typename T::mapped_type;
};

template <class T>
Json json_of(const T& value) {
  if constexpr (std::same_as<T, Json> || std::same_as<T, std::string> || std::same_as<T, bool> ||
                std::floating_point<T>) {
    return Json(value);
  } else if constexpr (std::is_enum_v<T> || std::integral<T>) {
    return Json(static_cast<std::int64_t>(value));
  } else if constexpr (HasMembers<T>) {
    Json out = Json::array();
    std::apply([&](const auto&... member) { (out.push_back(json_of(member)), ...); },
               // The function only names members and changes none.
               stored_members(const_cast<T&>(value)));
    return out;
  } else if constexpr (IsOptional<T>) {
    return value ? Json(Json::Array{json_of(*value)}) : Json();
  } else if constexpr (IsMap<T>) {
    Json out = Json::array();
    for (const auto& [key, mapped] : value) {
      out.push_back(json_of(key));
      out.push_back(json_of(mapped));
    }
    return out;
  } else {
    Json out = Json::array();
    for (const auto& item : value) out.push_back(json_of(item));
    return out;
  }
}

// Reads a value. Throws Error{kInput} for JSON that json_of() did not make of such a value.
template <class T>
T value_of(const Json& json);

template <class... Members>
void take_members(const Json& json, std::tuple<Members&...> members) {
  const Json::Array& items = json.items();
  if (items.size() != sizeof...(Members)) fail_input("row", "it has other members");
  std::size_t next = 0;
  std::apply(
      [&](auto&... member) {
        ((member = value_of<std::remove_reference_t<decltype(member)>>(items[next++])), ...);
      },
      members);
}

template <class T>
T value_of(const Json& json) {
  if constexpr (std::same_as<T, Json>) {
    return json;
  } else if constexpr (std::same_as<T, std::string>) {
    return json.as_string();
  } else if constexpr (std::same_as<T, bool>) {
    return json.as_bool();
  } else if constexpr (std::floating_point<T>) {
    return json.is_null() ? std::numeric_limits<T>::quiet_NaN() : static_cast<T>(json.as_double());
  } else if constexpr (std::is_enum_v<T> || std::integral<T>) {
    return static_cast<T>(json.as_int());
  } else if constexpr (HasMembers<T>) {
    T out{};
    take_members(json, stored_members(out));
    return out;
  } else if constexpr (IsOptional<T>) {
    if (json.is_null()) return std::nullopt;
    return value_of<typename T::value_type>(json.items().at(0));
  } else if constexpr (IsMap<T>) {
    T out;
    const Json::Array& items = json.items();
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      out.emplace(value_of<typename T::key_type>(items[i]),
                  value_of<typename T::mapped_type>(items[i + 1]));
    }
    return out;
  } else if constexpr (requires(T & list) { list.push_back({}); }) {
    T out;
    for (const Json& item : json.items()) out.push_back(value_of<typename T::value_type>(item));
    return out;
  } else {
    T out{};
    std::size_t next = 0;
    for (auto& item : out) item = value_of<typename T::value_type>(json.items().at(next++));
    return out;
  }
}

}  // namespace stored
}  // namespace tracestep
