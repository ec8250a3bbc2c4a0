// Json: what is read and written again reads back equal.
#include "base/json.h"

#include "fuzz/fuzz_target.h"

using namespace tracestep;
using namespace tracestep::fuzzing;

namespace {

// Every question that a reader asks of a value, whatever it is.
void look(const Json& json, int levels) {
  accepts([&] { json.as_bool(); });
  accepts([&] { json.as_int(); });
  accepts([&] { json.as_double(); });
  accepts([&] { json.as_string(); });
  accepts([&] { json.at("schema"); });
  accepts([&] { json.size(); });
  if (levels == 0) return;
  if (json.is_array() && json.size() > 0) look(json.items().front(), levels - 1);
  if (json.is_object() && json.size() > 0) {
    const auto& [key, value] = json.members().back();
    require(json.find(key) == &value);
    look(value, levels - 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  accepts([&] {
    const Json json = Json::parse(text_of(data, size), "input");
    look(json, 3);
    for (int indent : {-1, 2}) require(Json::parse(json.dump(indent), "output") == json);
  });
  return 0;
}
