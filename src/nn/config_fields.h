// Reads the fields of one object of a published config.json by type, and lists those that nobody
// asks for. nn/family_readers.h knows which fields a family has.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace tracestep {

// Reads typed fields of a JSON object. The functions return `usual` if the field is missing or
// null, and throw Error{kInput} naming `where` and the field for a value of another type.
class ConfigFields {
 public:
  static constexpr std::int64_t kMostSize = std::int64_t{1} << 40;

  // Reads `json`; finish() adds to the list `unknown`. This and `json` must outlive the object.
  ConfigFields(const Json& json, std::string where, std::vector<std::string>& unknown)
      : json_(json), where_(std::move(where)), unknown_(unknown) {}

  // Returns the member; nullptr if it is missing or null.
  const Json* find(std::string_view key);

  std::int64_t integer(std::string_view key, std::int64_t usual, std::int64_t most = kMostSize);
  double real(std::string_view key, double usual);
  bool flag(std::string_view key, bool usual);
  std::string text(std::string_view key, std::string usual);
  // Throws unless the field is `value` or missing, because no program computes another one.
  void expect(std::string_view key, bool value);

  [[noreturn]] void fail(std::string_view key, std::string_view expected) const;

  // Adds the members that nobody has asked for to the list, unless they are harmless.
  void finish();

  const std::string& where() const { return where_; }
  const Json& json() const { return json_; }
  std::vector<std::string>& unknown() const { return unknown_; }

 private:
  const Json& json_;
  std::string where_;
  std::vector<std::string>& unknown_;
  std::set<std::string, std::less<>> used_;
};

}  // namespace tracestep
