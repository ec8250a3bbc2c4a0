#include "weights/weight_files.h"

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"

namespace tracestep {
namespace {

constexpr const char* kWhere = "weights";
constexpr std::size_t kShownBytes = 200;  // of a name, in a message

// True for the name of a file in the folder itself, so that an index cannot lead elsewhere.
bool is_plain(const std::string& name) {
  return name.ends_with(".safetensors") &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

}  // namespace

WeightIndex parse_weight_index(std::string_view text, const std::string& where) {
  const Json document = Json::parse(text, where);
  const Json* map = document.is_object() ? document.find("weight_map") : nullptr;
  if (map == nullptr || !map->is_object() || map->size() == 0) {
    fail_input(kWhere, "{} has no weight_map, which says where each tensor is", where);
  }
  WeightIndex out;
  for (const auto& [tensor, file] : map->members()) {
    if (!file.is_string() || !is_plain(file.as_string())) {
      fail_input(kWhere,
                 "{} says that {} is in {}; the name of a safetensors file beside it is expected",
                 where, message_line(tensor, kShownBytes), message_line(file.dump(), kShownBytes));
    }
    out.emplace(tensor, file.as_string());
  }
  return out;
}

}  // namespace tracestep
