// Matches two sequences of kernels by walking along both. Where they differ, it looks for the
// nearest place from which a few kernels agree again; kernels in between are matched by position if
// there are as many on both sides.
#include "lab/read/replay_names.h"

#include <algorithm>

namespace tracestep {
namespace {

constexpr std::size_t kMostKept = 200'000;
constexpr std::size_t kMostKnown = 256;  // replays that differ
constexpr std::size_t kAgree = 4;        // kernels in a row that are no chance
constexpr std::size_t kMostSkipped = 64;
constexpr std::size_t kMostBegins = 64;

bool agree(std::span<const std::uint32_t> a, std::size_t i, std::span<const std::uint32_t> b,
           std::size_t j) {
  const std::size_t count = std::min({kAgree, a.size() - i, b.size() - j});
  return count > 0 && (count == kAgree || i + count == a.size()) &&
         std::ranges::equal(a.subspan(i, count), b.subspan(j, count));
}

}  // namespace

void EagerKernels::add(std::uint32_t name, const HostPlace& place) {
  if (names_.size() == 2 * kMostKept) {
    names_.erase(names_.begin(), names_.begin() + kMostKept);
    places_.erase(places_.begin(), places_.begin() + kMostKept);
    known_.clear();
  }
  names_.push_back(name);
  places_.push_back(place);
}

// Returns how many kernels of the replay and of the eager run to skip until both agree again: the
// fewest, preferably as many of both, which are then matched. {1, 0} if nothing agrees.
std::pair<std::size_t, std::size_t> EagerKernels::differing(std::span<const std::uint32_t> replay,
                                                            std::size_t i, std::size_t j) const {
  const auto is_end = [&](std::size_t in_replay, std::size_t in_eager) {
    return i + in_replay < replay.size() && j + in_eager < names_.size() &&
           agree(replay, i + in_replay, names_, j + in_eager);
  };
  for (std::size_t both = 1; both <= 2 * kMostSkipped; ++both) {
    if (both % 2 == 0 && is_end(both / 2, both / 2)) return {both / 2, both / 2};
    for (std::size_t in_replay = 0; in_replay <= both; ++in_replay) {
      if (is_end(in_replay, both - in_replay)) return {in_replay, both - in_replay};
    }
  }
  return {1, 0};
}

EagerKernels::Match EagerKernels::match_from(std::span<const std::uint32_t> replay,
                                             std::size_t first, std::size_t begin) const {
  Match out{.places = std::vector<std::uint32_t>(replay.size(), kNoNumber), .of = names_.size()};
  std::size_t i = first, j = begin;
  const auto take = [&] {
    out.places[i] = static_cast<std::uint32_t>(j);
    ++out.count;
    ++i, ++j;
  };
  while (i < replay.size() && j < names_.size()) {
    if (replay[i] == names_[j]) {
      take();
      continue;
    }
    const auto [in_replay, in_eager] = differing(replay, i, j);
    for (std::size_t k = 0; in_replay == in_eager && k < in_replay; ++k) take();
    if (in_replay == in_eager) continue;
    i += in_replay;
    j += in_eager;
  }
  return out;
}

EagerKernels::Match EagerKernels::match(std::span<const std::uint32_t> replay) const {
  Match best{.places = std::vector<std::uint32_t>(replay.size(), kNoNumber), .of = names_.size()};
  std::size_t tried = 0;
  for (std::size_t first = 0; first < std::min(replay.size(), kMostSkipped) && best.count == 0;
       ++first) {
    // The latest begin that agrees comes first, as what ran before the last steps may be warm-up.
    for (std::size_t back = 1; back <= names_.size() && tried < kMostBegins; ++back) {
      const std::size_t begin = names_.size() - back;
      if (!agree(replay, first, names_, begin)) continue;
      ++tried;
      Match found = match_from(replay, first, begin);
      if (found.count > best.count) best = std::move(found);
      if (best.count == replay.size()) return best;
    }
  }
  return best;
}

std::vector<const HostPlace*> EagerKernels::places_of(std::span<const std::uint32_t> replay) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::uint32_t name : replay) hash = (hash ^ name) * 0x100000001b3u + (hash >> 29);
  if (known_.size() >= kMostKnown) known_.clear();
  const auto [found, is_new] = known_.try_emplace(hash);
  // A poor match may be better once more has run.
  const bool is_poor = 10 * found->second.count < 9 * replay.size() &&
                       names_.size() >= found->second.of + replay.size();
  if (is_new || is_poor) found->second = match(replay);
  std::vector<const HostPlace*> out(replay.size(), nullptr);
  const std::vector<std::uint32_t>& places = found->second.places;
  for (std::size_t i = 0; i < std::min(out.size(), places.size()); ++i) {
    if (places[i] != kNoNumber) out[i] = &places_[places[i]];
  }
  return out;
}

EagerKernels EagerKernels::renumbered(const Names& names, const Names& paths, Names& to_names,
                                      Names& to_paths) const {
  EagerKernels out = *this;
  out.known_.clear();
  for (std::uint32_t& name : out.names_) name = to_names.number_of(names[name]);
  for (HostPlace& place : out.places_) {
    place.module = to_paths.number_of(paths[place.module]);
    if (place.op != kNoNumber) place.op = to_names.number_of(names[place.op]);
  }
  return out;
}

}  // namespace tracestep
