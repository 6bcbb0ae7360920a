#include "io/data_text.hpp"

#include "moeloom/base/errors.hpp"

#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <zlib.h>

#include "support/expect_error.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

class DataTextTest : public ::testing::Test {
 protected:
  DataTextTest() { fs::create_directories(folder_); }
  ~DataTextTest() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, std::string_view bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  fs::path pack(const std::string& name, const std::string& text) const {
    const gzFile file = gzopen((folder_ / name).c_str(), "ab");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
    return folder_ / name;
  }
  static std::string error_of(const fs::path& file) {
    try {
      const DataText text(file);
      return "none";
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  const fs::path folder_ = fs::temp_directory_path() / ("moeloom-data-text-" + std::to_string(::getpid()));
};

std::vector<std::string> elements(const std::string& text) {
  std::vector<std::string> found;
  for (const std::string_view each : json_elements(text, "a.json")) found.emplace_back(each);
  return found;
}

TEST_F(DataTextTest, GivesTextAsItIsAndGzipUnpackedWithAllItsMembers) {
  EXPECT_EQ(DataText(write("a.txt", "one\ntwo\n")).text(), "one\ntwo\n");
  pack("b.jsonl.gz", "one\n");
  const fs::path two = pack("b.jsonl.gz", "two\n");
  EXPECT_TRUE(is_gzip(two));
  EXPECT_EQ(DataText(two).text(), "one\ntwo\n");
  std::string long_text;
  for (int i = 0; i < 400'000; ++i) long_text += std::to_string(i) + "\n";
  EXPECT_EQ(DataText(pack("c.gz", long_text)).text(), long_text);
  EXPECT_EQ(DataText(write("empty.txt", "")).text(), "");
}

TEST_F(DataTextTest, RefusesDamagedGzip) {
  const fs::path whole = pack("a.gz", std::string(5000, 'x') + "y");
  const auto size = fs::file_size(whole);
  fs::resize_file(whole, size - 4);
  EXPECT_NE(error_of(whole).find("damaged gzip"), std::string::npos) << error_of(whole);
  EXPECT_NE(error_of(write("b.gz", "\x1f\x8b\x08 nothing of the kind")).find("damaged gzip"),
            std::string::npos);
}

TEST_F(DataTextTest, TakesZerosBehindGzip) {
  const fs::path padded = pack("a.gz", "text");
  std::ofstream(padded, std::ios::app | std::ios::binary) << std::string(512, '\0');
  EXPECT_EQ(DataText(padded).text(), "text");
}

TEST_F(DataTextTest, TellsJsonByItsBeginning) {
  const std::string long_row = "{\"a b\": \"" + std::string(1 << 16, 'x');
  for (const std::string& json :
       {std::string("{\"a\": 1}\nmore"), std::string("\xef\xbb\xbf \n[ {\n\"a\" : 2"), long_row})
    EXPECT_TRUE(begins_as_json(write("a.txt", json))) << json;
  for (const char* text :
       {"", "{", "{\n \"cells\": []", "{\"a\": 1} is JSON", "[1, 2]", "{a: 1}", "{\"a\"}", "a {\"a\": 1}"})
    EXPECT_FALSE(begins_as_json(write("a.txt", text))) << text;
  EXPECT_TRUE(begins_as_json(pack("a.gz", "{\"a\": 1}")));
  EXPECT_FALSE(begins_as_json(folder_ / "none"));
  EXPECT_EQ(data_ending("Chats.CSV.GZ"), ".csv");
}

TEST_F(DataTextTest, WaitsForNoPipe) {
  const fs::path pipe = folder_ / "pipe.txt";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(is_gzip(pipe));
  EXPECT_FALSE(begins_as_json(pipe));
  EXPECT_NE(error_of(pipe).find("expected a regular file"), std::string::npos);
}

TEST_F(DataTextTest, RefusesByNameWhatIsNoText) {
  const std::vector<std::pair<std::string, std::string>> kinds = {{"PAR1", "Parquet"},
                                                                  {"ARROW1", "Arrow"},
                                                                  {"PK\x03\x04", "zip"},
                                                                  {"\x28\xb5\x2f\xfd", "zstd"},
                                                                  {"\xfd"
                                                                   "7zXZ",
                                                                   "xz"},
                                                                  {"BZh9", "bzip2"}};
  for (const auto& [first, name] : kinds) {
    const std::string error = error_of(write("data.jsonl", first + "rest"));
    EXPECT_NE(error.find(name + " is not read; convert it first: "), std::string::npos) << error;
  }
  EXPECT_NE(error_of(write("chats.csv", "a,b\n")).find("CSV is not read"), std::string::npos);
  const std::string packed = error_of(pack("chats.CSV.gz", "a,b\n"));
  EXPECT_NE(packed.find("CSV is not read; convert it first: gzip -dc < "), std::string::npos) << packed;
  const std::string zeros = error_of(write("a.txt", std::string("ab\0c", 4)));
  EXPECT_NE(zeros.find("a zero at byte 2"), std::string::npos) << zeros;
}

TEST_F(DataTextTest, FindsTheElementsOfAnArray) {
  EXPECT_TRUE(is_json_array(" \n[1]"));
  EXPECT_TRUE(is_json_array("\xef\xbb\xbf[1]")) << "behind a byte order mark";
  EXPECT_FALSE(is_json_array("{}"));
  EXPECT_EQ(elements("[]"), std::vector<std::string>());
  EXPECT_EQ(elements(R"([ {"a": [1, 2], "b": "],\"}"}, {"c": {}} ])"),
            (std::vector<std::string>{R"({"a": [1, 2], "b": "],\"}"})", R"({"c": {}} )"}));
  for (const char* broken : {"[1, 2", "[{]", "[\"a", "[1] 2", "{}", "[1}", R"([{"a": 1}})", "[1, ]", "[1,,2]",
                             "[,]", "[[1, 2}, 3]"})
    EXPECT_THROW(elements(broken), IoError) << broken;
}

}  // namespace
}  // namespace moeloom
