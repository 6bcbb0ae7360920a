#include "io/manifest.hpp"

#include "base/checksum.hpp"
#include "moeloom/base/errors.hpp"

#include "support/expect_error.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::message_of;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

std::string sum_of_text(const std::string& text) {
  return hex_text(checksum(std::as_bytes(std::span(text))));
}

TEST(Manifest, SaysAgainWhatWasWritten) {
  const TemporaryFolder folder;
  Manifest manifest;
  manifest.piece_bytes = 4;
  manifest.files["a b"] = {6, {"one", "two"}};
  manifest.files["empty"] = {0, {}};
  manifest.write(folder.path());
  const Manifest again = Manifest::read(folder.path());
  EXPECT_EQ(again.piece_bytes, 4);
  EXPECT_EQ(again.files.at("a b").bytes, 6);
  EXPECT_EQ(again.files.at("a b").pieces, (std::vector<std::string>{"one", "two"}));
  const std::vector<FilePiece> pieces = again.pieces();
  ASSERT_EQ(pieces.size(), 2u) << "an empty file has none";
  EXPECT_EQ(pieces[1].begin, 4);
  EXPECT_EQ(pieces[1].bytes, 2);
  EXPECT_EQ(again.sum_of(pieces[1]), "two");
}

TEST(Manifest, SumsPiecesAsTheChecksumOfTheirBytes) {
  const TemporaryFolder folder;
  std::string text(3 * (1 << 20) + 5, 'x');  // read in several goes
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i % 251);
  write_bytes(folder / "file", text);
  const auto bytes = static_cast<Index>(text.size());
  EXPECT_EQ(sum_of_piece(folder.path(), {"file", 0, bytes}), sum_of_text(text));
  EXPECT_EQ(sum_of_piece(folder.path(), {"file", 7, 1}), sum_of_text(text.substr(7, 1)));
  const std::string message = message_of<IoError>([&] {
    sum_of_piece(folder.path(), {"file", bytes - 1, 2});
  });
  EXPECT_NE(message.find("ends at byte " + std::to_string(bytes)), std::string::npos) << message;
}

TEST(Manifest, KnowsThatItIsDamagedItself) {
  const TemporaryFolder folder;
  Manifest manifest;
  manifest.files["file"] = {3, {"0123456789abcdef"}};
  manifest.write(folder.path());
  const std::string whole = read_bytes(folder / kManifestFile);
  Index found = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string flipped = whole;
    flipped[i] ^= 1;
    write_bytes(folder / kManifestFile, flipped);
    try {
      const Manifest read = Manifest::read(folder.path());
      // White space may change.
      EXPECT_EQ(read.files.at("file").pieces, manifest.files.at("file").pieces) << flipped;
      EXPECT_EQ(read.files.at("file").bytes, 3) << flipped;
    } catch (const IoError&) {
      ++found;
    }
  }
  EXPECT_GT(found, static_cast<Index>(whole.size()) / 2);
}

/// A manifest with another list in it, and the sum that belongs to it.
std::string refusal(const std::string& name, Index bytes, Index piece_bytes) {
  const TemporaryFolder folder;
  Manifest manifest;
  manifest.piece_bytes = piece_bytes;
  manifest.files[name] = {bytes, {"sum"}};
  manifest.write(folder.path());
  return message_of<IoError>([&] { Manifest::read(folder.path()); });
}

TEST(Manifest, RefusesWhatStrangersMayWrite) {
  EXPECT_NE(refusal("../x", 3, 8).find("is not the name of a file"), std::string::npos);
  EXPECT_NE(refusal("/etc/passwd", 3, 8).find("is not the name of a file"), std::string::npos);
  EXPECT_NE(refusal(std::string("x\0y", 3), 3, 8).find(": \"x"), std::string::npos);
  EXPECT_NE(refusal("", 3, 8).find("is not the name of a file"), std::string::npos);
  EXPECT_NE(refusal(kManifestFile, 3, 8).find("is not the name of a file"), std::string::npos);
  EXPECT_NE(refusal("x", 9, 8).find("1 sums do not cover 9 bytes"), std::string::npos);
  EXPECT_NE(refusal("x", -3, 8).find("do not cover -3"), std::string::npos);
  EXPECT_NE(refusal("x", INT64_MAX, 1).find("do not cover"), std::string::npos);
  EXPECT_NE(refusal("x", 3, 0).find("pieces need at least one byte"), std::string::npos);
  EXPECT_NE(refusal("x", 3, -8).find("pieces need at least one byte"), std::string::npos);
}

/// Two pieces of that many bytes end behind the largest number.
TEST(Manifest, RefusesFilesWhoseBytesCannotBeCounted) {
  const TemporaryFolder folder;
  const Index half = (Index{1} << 62) + 1;
  Manifest manifest{.piece_bytes = half, .files = {{"x", {INT64_MAX, {"one", "two"}}}}};
  const auto refused = [&] {
    manifest.write(folder.path());
    return message_of<IoError>([&] { Manifest::read(folder.path()); });
  };
  EXPECT_NE(refused().find("its files have more than"), std::string::npos);
  EXPECT_NE(refused().find("; copy it again, or take another"), std::string::npos);
  manifest.files = {{"x", {half, {"one"}}}, {"y", {half, {"one"}}}};
  EXPECT_NE(refused().find("its files have more than"), std::string::npos);
}

TEST(Manifest, FindsFilesOfAnotherSizeOrKind) {
  const TemporaryFolder folder;
  write_bytes(folder / "file", "abc");
  std::filesystem::create_directory(folder / "folder");
  EXPECT_EQ(size_violation(folder.path(), "file", 3), "");
  EXPECT_EQ(size_violation(folder.path(), "file", 4), "has 3 bytes; 4 were written");
  EXPECT_EQ(size_violation(folder.path(), "absent", 4), "is missing");
  EXPECT_NE(size_violation(folder.path(), "folder", 4).find("found a folder"), std::string::npos);
  std::filesystem::create_symlink("itself", folder / "itself");
  EXPECT_NE(size_violation(folder.path(), "itself", 4).find("Too many levels"), std::string::npos);
  std::filesystem::remove(folder / "itself");
  write_bytes(folder / kManifestFile, "{}");
  EXPECT_EQ(sizes_in(folder.path()), (std::map<std::string, Index>{{"file", 3}}));
}

}  // namespace
}  // namespace moeloom
