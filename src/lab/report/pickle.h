// A writer of Python's pickle format, protocol 2, for plain data: numbers, text, lists, dicts and
// pairs. No classes and no calls, so that readers can refuse those.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tracestep {

// Appends pickled values to a string. Containers are closed in the reverse order of opening; a dict
// takes a key and a value in turn. A text that was written before is fetched from the memo.
class PickleWriter {
 public:
  PickleWriter() { out_ += "\x80\x02"; }

  void none() { out_ += 'N'; }
  void boolean(bool value) { out_ += value ? '\x88' : '\x89'; }
  void integer(std::int64_t value);
  void real(double value);
  void text(std::string_view value);
  void pair(std::int64_t first, std::int64_t second);

  void begin_list();
  // Must be called before every item; writes items of long lists in batches, as readers require.
  void next_item();
  void end_list();
  void begin_dict() { out_ += "}("; }
  void end_dict() { out_ += 'u'; }

  // Stores the value written last in the memo and returns its index, so that it can be written
  // again as the same object.
  int remember();
  void fetch(int memo);

  // Ends the pickle and returns the file.
  std::string finish() && { return std::move(out_ += '.'); }

 private:
  void little_endian(std::uint64_t value, int bytes);

  std::string out_;
  std::map<std::string, int, std::less<>> texts_;
  int memos_ = 0;
  std::vector<int> batched_;  // items in the open batch of each open list
};

}  // namespace tracestep
