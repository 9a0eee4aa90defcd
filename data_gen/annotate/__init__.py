"""Gold decompositions become plans, trees and natural words; all is checked before anything is learnt from it."""
