// Names of tensors in an adapter's file, which differ with the program that wrote it.
//
// PEFT writes base_model.model.PATH.lora_A.weight, where PATH is the module's in the class that was trained.
// Others leave out a prefix or double it, keep the adapter's own name (lora_A.default.weight), or the names
// that a compiled or sharded model has.
#pragma once

#include "model/hf/weights/adapter.hpp"

namespace moeloom {

/// The factors of a module, by the shapes of their tensors; empty where there is none.
struct NamedFactors {
  std::string in_peft;  // the module's name in the class that was trained
  std::vector<Index> a, b;
};

struct AdapterNames {
  std::map<std::string, NamedFactors> paths;   // by the module's path in the model's folder
  std::map<std::string, std::string> tensors;  // what the file calls what PEFT calls otherwise
  std::vector<std::string> strays;             // tensors that are no factors of the text model's layers
  std::vector<std::string> twice;              // factors of a module that has others
};

/// body: the prefix of the folder's layers ("model.").
AdapterNames adapter_names(const TensorShapes& tensors, const std::string& body);

/// What is wrong with tensors that are no factors, in a line for each kind.
std::vector<std::string> stray_violations(const AdapterNames& names);

}  // namespace moeloom
