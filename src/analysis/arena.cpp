#include "analysis/arena.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <tuple>

#include "base/integers.h"

namespace tracestep {
namespace {

// A block, with the keys by which the packing orders sort it.
struct Item {
  std::int64_t bytes = 0;  // rounded up
  Lifetime life;
  std::int64_t steps = 0;       // length of its lifetime
  std::int64_t contention = 0;  // the largest total of live bytes during its lifetime
};

// Returns the bytes alive at each step, those of a block rounded up to kArenaAlignment.
std::vector<std::int64_t> live_bytes(const std::vector<ArenaBlock>& blocks) {
  std::int32_t end = 0;
  for (const ArenaBlock& b : blocks) end = std::max(end, b.life.last + 1);
  std::vector<std::int64_t> live(static_cast<std::size_t>(end) + 1, 0);
  for (const ArenaBlock& b : blocks) {
    const std::int64_t bytes = round_up(b.bytes, kArenaAlignment);
    live[static_cast<std::size_t>(b.life.first)] += bytes;
    live[static_cast<std::size_t>(b.life.last) + 1] -= bytes;
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  return live;
}

using Order = bool (*)(const Item&, const Item&);

// Orders in which items are placed; ties keep the order of the program. Longest lifetimes first
// gives stacks, since backward frees in reverse what forward saved. The other orders win where all
// lifetimes are short.
constexpr Order kOrders[] = {
    [](const Item& a, const Item& b) {
      return std::tie(b.steps, b.bytes) < std::tie(a.steps, a.bytes);
    },
    [](const Item& a, const Item& b) {
      return std::tie(b.contention, b.steps, b.bytes) < std::tie(a.contention, a.steps, a.bytes);
    },
    [](const Item& a, const Item& b) { return a.bytes > b.bytes; },
};

// Packs blocks as two stacks in one arena: those allocated up to the fullest step grow from the
// bottom, later ones from the top down. So gradients take the place of activations in the order
// in which backward frees them.
class Packer {
 public:
  explicit Packer(const std::vector<ArenaBlock>& blocks) : offsets_(blocks.size()) {
    const std::vector<std::int64_t> live = live_bytes(blocks);
    const auto fullest = std::ranges::max_element(live);
    ceiling_ = *fullest;
    fullest_step_ = static_cast<std::int32_t>(fullest - live.begin());
    const auto eras = std::clamp(static_cast<std::int32_t>(blocks.size()) / kBlocksOfEra, 64, 4096);
    steps_of_era_ = static_cast<std::int32_t>(live.size()) / eras + 1;
    for (const ArenaBlock& b : blocks) {
      const auto first = live.begin() + b.life.first, last = live.begin() + b.life.last;
      items_.push_back({round_up(b.bytes, kArenaAlignment), b.life, last - first + 1,
                        *std::max_element(first, last + 1)});
    }
  }

  std::int64_t least() const { return ceiling_; }
  const std::vector<std::int64_t>& offsets() const { return offsets_; }

  std::vector<std::size_t> sorted(Order order) const {
    std::vector<std::size_t> out(items_.size());
    std::iota(out.begin(), out.end(), std::size_t{0});
    std::ranges::stable_sort(out, order, [&](std::size_t i) { return items_[i]; });
    return out;
  }

  // Sets the offsets of the items, one after the other; returns the height of the arena, in bytes.
  std::int64_t place(const std::vector<std::size_t>& sequence) {
    std::int32_t end = 0;
    for (const Item& item : items_) end = std::max(end, item.life.last + 1);
    placed_in_.assign(at(era_of(end)) + 1, {});
    std::int64_t height = 0;
    for (std::size_t i : sequence) {
      const Item& item = items_[i];
      const int era = era_of(item.life.first), last_era = era_of(item.life.last);
      offsets_[i] =
          best_offset(item, era == last_era ? placed_in_[at(era)] : placed_between(item.life));
      height = std::max(height, offsets_[i] + item.bytes);
      const Placed placed{offsets_[i], item.bytes, item.life};
      for (int e = era; e <= last_era; ++e) insert(placed, placed_in_[at(e)]);
    }
    return height;
  }

  // Moves the items that ended above the lower bound to the front, for the next round.
  void promote(std::vector<std::size_t>& sequence) const {
    std::ranges::stable_partition(
        sequence, [&](std::size_t i) { return offsets_[i] + items_[i].bytes > ceiling_; });
  }

 private:
  struct Placed {
    std::int64_t offset = 0, bytes = 0;
    Lifetime life;
  };
  using InOrder = std::vector<Placed>;  // of offsets

  // Blocks per era, a stretch of steps: an item within one era is compared with that era's alone.
  static constexpr std::int32_t kBlocksOfEra = 128;
  int era_of(std::int32_t step) const { return step / steps_of_era_; }
  static std::size_t at(int era) { return static_cast<std::size_t>(era); }

  static void insert(const Placed& placed, InOrder& list) {
    list.insert(std::ranges::upper_bound(list, placed.offset, {}, &Placed::offset), placed);
  }

  // Returns the placed items whose lifetimes overlap with `life`, one of several eras, by
  // offset. An item listed in several of these eras is taken from the first that both live in.
  const InOrder& placed_between(const Lifetime& life) {
    found_.clear();
    for (int era = era_of(life.first); era <= era_of(life.last); ++era) {
      std::ranges::copy_if(placed_in_[at(era)], std::back_inserter(found_), [&](const Placed& p) {
        const int begin = std::max(era_of(p.life.first), era_of(life.first));
        return era == begin && life.overlaps(p.life);
      });
    }
    std::ranges::stable_sort(found_, {}, &Placed::offset);
    return found_;
  }

  // Returns an offset for the item: at an end of the smallest gap that is large enough between
  // items alive at the same time, or above them all. `placed` has all of these.
  std::int64_t best_offset(const Item& item, const InOrder& placed) const {
    const bool hangs = item.life.first > fullest_step_;
    std::int64_t best = -1, best_gap = 0, top = 0;
    const auto look = [&](std::int64_t end) {
      const std::int64_t gap = end - top;
      if (gap < item.bytes || (best >= 0 && gap >= best_gap)) return;
      best = hangs ? end - item.bytes : top;
      best_gap = gap;
    };
    for (const Placed& p : placed) {
      if (!item.life.overlaps(p.life)) continue;
      look(p.offset);
      top = std::max(top, p.offset + p.bytes);
    }
    look(ceiling_);
    return best < 0 ? top : best;
  }

  std::vector<Item> items_;
  std::int64_t ceiling_ = 0;
  std::int32_t fullest_step_ = 0, steps_of_era_ = 1;
  std::vector<std::int64_t> offsets_;  // by item
  std::vector<InOrder> placed_in_;     // by era: what lives in it
  InOrder found_;
};

}  // namespace

std::int64_t least_arena_bytes(const std::vector<ArenaBlock>& blocks) {
  const std::vector<std::int64_t> live = live_bytes(blocks);
  return *std::ranges::max_element(live);
}

std::int64_t pack_arena(std::vector<ArenaBlock>& blocks) {
  constexpr int kRounds = 4;
  Packer packer(blocks);
  std::int64_t best = -1;
  for (const Order order : kOrders) {
    std::vector<std::size_t> sequence = packer.sorted(order);
    for (int round = 0; round < kRounds && best != packer.least(); ++round) {
      const std::int64_t height = packer.place(sequence);
      packer.promote(sequence);
      if (best >= 0 && height >= best) continue;
      best = height;
      for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i].offset = packer.offsets()[i];
    }
  }
  return std::max<std::int64_t>(best, 0);
}

}  // namespace tracestep
