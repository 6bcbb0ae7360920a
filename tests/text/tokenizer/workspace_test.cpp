#include "tokenizer/workspace.hpp"

#include <gtest/gtest.h>

namespace moeloom::tokenizing {
namespace {

/// Whoever tokenized one very long text would hold its arrays to the end, on every thread.
TEST(WorkspacePool, KeepsLittleOfWhatALongTextNeeded) {
  WorkspacePool pool;
  constexpr std::size_t kLong = std::size_t{4} << 20;
  const Workspace* first = nullptr;
  {
    const WorkspacePool::Loan loan = pool.lend();
    first = &*loan;
    (*loan).bpe.symbols.resize(kLong);
    (*loan).bpe.ranks.resize(kLong);
    (*loan).bpe.heap.resize(kLong);
    (*loan).unigram.best.resize(kLong);
    (*loan).unigram.ends.resize(kLong);
    (*loan).tokens.resize(kLong);
    EXPECT_GT((*loan).bytes(), 6 * kLong);
  }
  const WorkspacePool::Loan loan = pool.lend();
  EXPECT_EQ(&*loan, first) << "the words that it knows are kept";
  EXPECT_EQ((*loan).bytes(), 0u);
}

TEST(WorkspacePool, KeepsWhatUsualTextsNeed) {
  WorkspacePool pool;
  { (*pool.lend()).tokens.resize(1000); }
  EXPECT_GE((*pool.lend()).tokens.capacity(), 1000u);
}

}  // namespace
}  // namespace moeloom::tokenizing
