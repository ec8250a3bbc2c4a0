#include "base/input_file.h"

#include <sys/stat.h>

#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace tracestep {
namespace {

std::string read(const InputFile& file, std::uint64_t offset, std::size_t size) {
  std::string out(size, '\0');
  file.read(offset, std::as_writable_bytes(std::span(out)));
  return out;
}

TEST(InputFileTest, PartsAreReadFromAnyPlace) {
  const TempFolder folder;
  const InputFile file(folder.write("f", "0123456789"));
  EXPECT_EQ(file.size(), 10u);
  EXPECT_EQ(read(file, 3, 4), "3456");
  EXPECT_EQ(read(file, 10, 0), "");
}

TEST(InputFileTest, AFileThatIsCutShortWhileItIsOpenIsAnErrorWithBothSizes) {
  const TempFolder folder;
  const auto path = folder.write("f", "0123456789");
  const InputFile file(path, "tokens");
  std::filesystem::resize_file(path, 4);
  EXPECT_EQ(read(file, 0, 4), "0123");
  const std::string message = message_of(ErrorCode::kInput, [&] { read(file, 2, 4); });
  EXPECT_TRUE(message.starts_with("[tokens] " + path.string())) << message;
  EXPECT_TRUE(contains(message, "had 10 bytes when it was opened and has 4 now"));
}

TEST(InputFileTest, WhatIsNoRegularFileIsRefusedWithoutBlocking) {
  const TempFolder folder;
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  const auto refused = [](const std::filesystem::path& path) {
    return message_of(ErrorCode::kInput, [&] { InputFile file(path); });
  };
  EXPECT_TRUE(contains(refused(folder / "fifo"), "a FIFO, not a regular file"));
  EXPECT_TRUE(contains(refused(folder.path()), "a directory, not a regular file"));
  EXPECT_TRUE(contains(refused("/dev/null"), "a device, not a regular file"));
  EXPECT_TRUE(contains(refused(folder / "missing"), "does not exist"));
}

TEST(InputFileTest, ATextBeyondItsLimitIsRefusedBeforeItIsRead) {
  const TempFolder folder;
  const auto path = folder.write("f", "0123456789");
  EXPECT_EQ(read_text_file(path, "x", 10), "0123456789");
  std::filesystem::resize_file(path, std::uint64_t{1} << 40);
  EXPECT_TRUE(contains(message_of(ErrorCode::kInput, [&] { read_text_file(path, "x", 1024); }),
                       "has 1099511627776 bytes; at most 1.00 KiB are read"));
}

TEST(InputFileTest, TheMarkOfUtf8IsNoPartOfATextAndThatOfAnotherEncodingIsSaid) {
  const TempFolder folder;
  EXPECT_EQ(read_text_file(folder.write("f", "\xef\xbb\xbf{}"), "x", 10), "{}");
  const auto path = folder.write("g", std::string("\xff\xfe{\0}\0", 6));
  const std::string error = message_of(ErrorCode::kInput, [&] { read_text_file(path, "x", 1024); });
  EXPECT_TRUE(
      contains(error, "g is text in UTF-16, by the mark at its beginning; write it in UTF-8"))
      << error;
}

}  // namespace
}  // namespace tracestep
