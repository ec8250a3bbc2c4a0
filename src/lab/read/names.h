// Numbers texts, and keeps each once, however often a file repeats it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tracestep {

inline constexpr std::uint32_t kNoNumber = UINT32_MAX;

class Names {
 public:
  std::uint32_t number_of(std::string_view name) {
    if (const auto found = numbers_.find(name); found != numbers_.end()) return found->second;
    const auto number = static_cast<std::uint32_t>(texts_.size());
    texts_.emplace_back(name);
    numbers_.emplace(texts_.back(), number);
    return number;
  }
  // The number of a text; kNoNumber: it has none yet.
  std::uint32_t find(std::string_view name) const {
    const auto found = numbers_.find(name);
    return found == numbers_.end() ? kNoNumber : found->second;
  }
  const std::string& operator[](std::uint32_t number) const { return texts_[number]; }
  std::size_t size() const { return texts_.size(); }

 private:
  std::deque<std::string> texts_;  // A deque, so that the addresses of the texts stay valid.
  std::unordered_map<std::string_view, std::uint32_t> numbers_;
};

}  // namespace tracestep
