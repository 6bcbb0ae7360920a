// What one thread needs to encode, kept from call to call so that the words seen stay known.
#pragma once

#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include "tokenizer/bpe.hpp"
#include "tokenizer/regex.hpp"
#include "tokenizer/unigram.hpp"
#include "tokenizer/word_cache.hpp"

namespace moeloom::tokenizing {

struct Workspace {
  /// Of one array. One very long text without a place to split at takes a hundred times its own bytes.
  static constexpr std::size_t kMostKept = std::size_t{1} << 20;

  RegexSpace regex;
  BpeSpace bpe;
  UnigramSpace unigram;
  std::vector<Token> tokens;
  WordCache words;

  /// Gives back what only a long text needed.
  void shrink() {
    const auto shorten = [](auto& array) {
      if (array.capacity() * sizeof(array[0]) > kMostKept)
        std::remove_reference_t<decltype(array)>().swap(array);
    };
    shorten(bpe.symbols);
    shorten(bpe.ranks);
    shorten(bpe.heap);
    shorten(unigram.best);
    shorten(unigram.ends);
    shorten(tokens);
  }
  std::size_t bytes() const {
    const auto of = [](const auto& array) { return array.capacity() * sizeof(array[0]); };
    return of(bpe.symbols) + of(bpe.ranks) + of(bpe.heap) + of(unigram.best) + of(unigram.ends) + of(tokens);
  }
};

/// Lends each thread one of its own; as many are made as were ever wanted at once.
class WorkspacePool {
 public:
  class Loan {
   public:
    Loan(WorkspacePool& pool, std::unique_ptr<Workspace> lent) : pool_(pool), lent_(std::move(lent)) {}
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    ~Loan() {
      lent_->shrink();
      const std::lock_guard lock(pool_.mutex_);
      pool_.free_.push_back(std::move(lent_));
    }
    Workspace& operator*() const { return *lent_; }

   private:
    WorkspacePool& pool_;
    std::unique_ptr<Workspace> lent_;
  };

  /// Back when the loan ends, on whatever thread.
  Loan lend() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      free_.reserve(++made_);  // so that giving back cannot fail
      return {*this, std::make_unique<Workspace>()};
    }
    std::unique_ptr<Workspace> workspace = std::move(free_.back());
    free_.pop_back();
    return {*this, std::move(workspace)};
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
  std::size_t made_ = 0;
};

}  // namespace moeloom::tokenizing
