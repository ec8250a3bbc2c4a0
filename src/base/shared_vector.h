// A list whose copies share memory until one of them is changed (copy on write). Every pass copies
// programs, and the origins of most nodes stay the same.
#pragma once

#include <atomic>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace tracestep {

// A list whose copies share memory until one is changed. Threads may each use copies of their own.
template <class T>
class SharedVector {
 public:
  SharedVector() = default;
  SharedVector(std::vector<T> items) {  // NOLINT: wherever a list is wanted
    if (!items.empty()) items_ = std::make_shared<std::vector<T>>(std::move(items));
  }
  SharedVector(std::initializer_list<T> items) : SharedVector(std::vector<T>(items)) {}

  const std::vector<T>& get() const {
    static const std::vector<T> none;
    return items_ ? *items_ : none;
  }
  // Gives access for changes; from then on this object has its own copy of the list.
  std::vector<T>& edit() {
    if (!items_) {
      items_ = std::make_shared<std::vector<T>>();
    } else if (items_.use_count() > 1) {
      items_ = std::make_shared<std::vector<T>>(*items_);
    } else {
      // Orders this after reads by former owners.
      std::atomic_thread_fence(std::memory_order_acquire);
    }
    return *items_;
  }

  auto begin() const { return get().begin(); }
  auto end() const { return get().end(); }
  std::size_t size() const { return get().size(); }
  bool empty() const { return get().empty(); }
  const T& front() const { return get().front(); }
  const T& operator[](std::size_t i) const { return get()[i]; }

  friend bool operator==(const SharedVector& a, const SharedVector& b) {
    return a.items_ == b.items_ || a.get() == b.get();
  }

 private:
  std::shared_ptr<std::vector<T>> items_;  // nullptr: the list is empty.
};

}  // namespace tracestep
