#include "lab/memory/buffer_filter.h"

#include <algorithm>

#include "base/error.h"

namespace tracestep {
namespace {

std::string plural_of(Category category) {
  std::string name(name_of(category));
  if (!name.ends_with('y')) return name + "s";
  name.pop_back();
  return name + "ies";
}

}  // namespace

bool is_part_of(std::string_view component, std::string_view path) {
  for (std::size_t at = path.find(component); at != std::string_view::npos;
       at = path.find(component, at + 1)) {
    const std::size_t end = at + component.size();
    const bool begins = at == 0 || path[at - 1] == '.';
    const bool ends = end == path.size() || path[end] == '.';
    if (component.empty() || (begins && ends)) return true;
  }
  return false;
}

bool BufferFilter::admits(const MappedBuffer& buffer) const {
  const bool is_of_phase =
      phases.empty() || (buffer.first != kNoNode && phases.contains(buffer.phase));
  return is_of_phase && !without.contains(buffer.category) && is_part_of(component, buffer.path);
}

std::vector<std::string> category_names() {
  std::vector<std::string> out;
  for (Category category : kAll<Category>) out.push_back(plural_of(category));
  return out;
}

Category category_named(std::string_view name) {
  const auto found = std::ranges::find(kAll<Category>, name, plural_of);
  TRACESTEP_CHECK(found != std::end(kAll<Category>), "there is no category {}", name);
  return *found;
}

}  // namespace tracestep
