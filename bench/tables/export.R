# SPDX-License-Identifier: MIT
# usage: Rscript export.R DIR: writes tables of the package mlbench as CSV files.
library(mlbench)
folder <- commandArgs(trailingOnly = TRUE)[1]
data(HouseVotes84, Soybean, Zoo, DNA, LetterRecognition, BreastCancer)
set.seed(1)
put <- function(table, name) write.csv(table, file.path(folder, paste0(name, ".csv")), row.names = FALSE, na = "")
text <- function(table) as.data.frame(lapply(table, function(c) paste0("v", as.character(c))))
blank <- function(table) { table[] <- lapply(table, function(c) ifelse(c == "vNA", NA, c)); table }
put(HouseVotes84, "votes")
put(blank(text(Soybean)), "soybean")
put(text(Zoo), "zoo")
put(text(DNA[sample(nrow(DNA), 1500), c(61:120, 181)]), "dna")
put(LetterRecognition[sample(nrow(LetterRecognition), 3000), ], "letters")
put(blank(text(BreastCancer[, -1])), "biopsies")
