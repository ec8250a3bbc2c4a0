#include "lab/report/csv_reader.h"

#include "base/error.h"

namespace tracestep {

std::vector<std::vector<std::string>> parse_csv(std::string_view text, const std::string& name) {
  constexpr std::size_t kMaxCells = std::size_t{1} << 20;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> row;
  std::string field;
  bool quoted = false;
  std::size_t cells = 0;
  const auto end_cell = [&] {
    if (++cells > kMaxCells) fail_input(name, "more than {} cells", kMaxCells);
    row.push_back(std::move(field));
    field.clear();
  };
  const auto end_row = [&] {
    end_cell();
    if (row.size() > 1 || !row[0].empty()) rows.push_back(std::move(row));
    row.clear();
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      field += text[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (quoted || (c != ',' && c != '\n' && c != '\r')) {
      field += c;
    } else if (c == ',') {
      end_cell();
    } else if (c == '\n') {
      end_row();
    }
  }
  if (!field.empty() || !row.empty()) end_row();
  return rows;
}

}  // namespace tracestep
